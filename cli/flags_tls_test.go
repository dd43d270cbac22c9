package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"locktop/server"
)

// authority signs certificates for a test. Its files are PEM.
type authority struct {
	dir, file string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = template, nil
	a.file, _ = a.issue(t, "ca", template)
	return a
}

// issue writes a certificate and its key, signed by a. The first certificate
// that a issues is its own.
func (a *authority) issue(t *testing.T, name string, template *x509.Certificate) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if a.key == nil {
		a.key = private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return a.write(t, name+".crt", "CERTIFICATE", der), a.write(t, name+".key", "PRIVATE KEY", pkcs8)
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// leaf returns a certificate template for clients and for a server named
// redis.test.
func leaf() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"redis.test"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// secured starts a server with TLS on a second port.
func secured(t *testing.T, args ...string) (plain *server.Child, port string) {
	t.Helper()
	port = freePort(t)
	return server.ForTest(t, append([]string{"--tls-port", port}, args...)...), port
}

func TestTLSIsVerifiedUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.issue(t, "server", leaf())
	clientCert, clientKey := ca.issue(t, "client", leaf())
	strayCert, strayKey := newAuthority(t).issue(t, "stray", leaf())
	old := leaf()
	old.NotBefore, old.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	oldCert, oldKey := ca.issue(t, "expired", old)
	plain, port := secured(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file)
	_, oldPort := secured(t, "--tls-cert-file", oldCert, "--tls-key-file", oldKey, "--tls-ca-cert-file", ca.file)
	_, openPort := secured(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file, "--tls-auth-clients", "no")
	address, expired, open := "rediss://127.0.0.1:"+port, "rediss://127.0.0.1:"+oldPort, "rediss://127.0.0.1:"+openPort

	client := []string{"--cert", clientCert, "--key", clientKey}
	trusted := append([]string{"--cacert", ca.file}, client...)
	tests := map[string]struct {
		args []string
		code int
		said string
	}{
		"an authority, a name and a client certificate": {append([]string{"-u", address, "--sni", "redis.test"}, trusted...), exitFine, ""},
		"the same by --tls":                             {append([]string{"-p", port, "--tls", "--sni", "redis.test"}, trusted...), exitFine, ""},
		"not verified":                                  {append([]string{"-u", address, "--insecure"}, client...), exitFine, "not verified"},
		"another name":                                  {append([]string{"-u", address, "--sni", "other.test"}, trusted...), exitNoConnect, "certificate"},
		"no name":                                       {append([]string{"-u", address}, trusted...), exitNoConnect, "certificate"},
		"an authority not trusted":                      {append([]string{"-u", address, "--sni", "redis.test"}, client...), exitNoConnect, "certificate"},
		"no client certificate":                         {[]string{"-u", address, "--sni", "redis.test", "--cacert", ca.file}, exitNoConnect, "connect"},
		"no TLS at all":                                 {[]string{"-p", port}, exitNoConnect, "try --tls"},
		"TLS to a plain port":                           {append([]string{"-u", "rediss://" + plain.Addr(), "--sni", "redis.test"}, trusted...), exitNoConnect, "connect"},
		"a certificate that has expired":                {append([]string{"-u", expired, "--sni", "redis.test"}, trusted...), exitNoConnect, "expired"},
		"an authority alone, where that is enough":      {[]string{"-u", open, "--sni", "redis.test", "--cacert", ca.file}, exitFine, ""},
		"another's client certificate":                  {[]string{"-u", address, "--sni", "redis.test", "--cacert", ca.file, "--cert", strayCert, "--key", strayKey}, exitNoConnect, "connect"},
		"a certificate without TLS":                     {append([]string{"-u", "redis://" + plain.Addr()}, client...), exitUsage, "without TLS"},
		"--insecure without TLS":                        {[]string{"-u", "redis://" + plain.Addr(), "--insecure"}, exitUsage, "without TLS"},
		"a certificate without key":                     {[]string{"-u", address, "--cert", clientCert}, exitUsage, "belong together"},
		"no certificates in the CA":                     {[]string{"-u", address, "--cacert", clientKey}, exitUsage, "no certificate"},
		"a CA file that is not there":                   {[]string{"-u", address, "--cacert", ca.file + "x"}, exitUsage, "no such file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := locktop(t, append([]string{"list", "--json"}, tt.args...)...)
			if o.code != tt.code || !strings.Contains(o.errors, tt.said) {
				t.Errorf("exit code %d, want %d; on stderr %q, want it to say %q", o.code, tt.code, o.errors, tt.said)
			}
			// A connection that fails is one line of error, and locktop tries
			// no other way.
			if o.code != exitFine && (strings.Count(o.errors, "\n") != 1 || o.out != "" && !strings.Contains(o.out, "error")) {
				t.Errorf("on stderr %q, on stdout %q", o.errors, o.out)
			}
		})
	}
}

// The command lines that inspect prints use TLS as inspect did.
func TestTheLinesThatInspectPrintsSpeakTLS(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, "it's a server", leaf())
	plain, port := secured(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file)
	flags := []string{"-p", port, "--tls", "--sni", "redis.test", "--cacert", ca.file, "--cert", cert, "--key", key}
	for _, way := range []string{"locktop", "redis-cli"} {
		send(t, plain.Addr(), "SET", "lock:a", token)
		release, line := printedLines(t, "lock:a", flags...)
		if way == "locktop" {
			line = yes(release)
		}
		if !strings.Contains(line, port) {
			t.Errorf("another port than %s: %s", port, line)
		}
		pasted(t, line)
		if value(t, plain.Addr(), "lock:a") != "" {
			t.Errorf("it is there yet: %s", line)
		}
	}
}
