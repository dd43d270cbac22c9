package cli

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// leaf returns a certificate template for clients and for a server named redis.test.
func leaf() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"redis.test"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// secured starts a server with TLS on a second port.
func secured(t *testing.T, args ...string) (plain *server.Child, port string) {
	t.Helper()
	port = freePort(t)
	return servertest.RedisForTest(t, append([]string{"--tls-port", port}, args...)...), port
}

func TestTLSIsVerifiedUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	ca := check.NewAuthority(t)
	cert, key := ca.Issue(t, "server", leaf())
	clientCert, clientKey := ca.Issue(t, "client", leaf())
	strayCert, strayKey := check.NewAuthority(t).Issue(t, "stray", leaf())
	old := leaf()
	old.NotBefore, old.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	oldCert, oldKey := ca.Issue(t, "expired", old)
	plain, port := secured(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File)
	_, oldPort := secured(t, "--tls-cert-file", oldCert, "--tls-key-file", oldKey, "--tls-ca-cert-file", ca.File)
	_, openPort := secured(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File, "--tls-auth-clients", "no")
	address, expired, open := "rediss://127.0.0.1:"+port, "rediss://127.0.0.1:"+oldPort, "rediss://127.0.0.1:"+openPort

	client := []string{"--cert", clientCert, "--key", clientKey}
	trusted := append([]string{"--cacert", ca.File}, client...)
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
		"no client certificate":                         {[]string{"-u", address, "--sni", "redis.test", "--cacert", ca.File}, exitNoConnect, "connect"},
		"no TLS at all":                                 {[]string{"-p", port}, exitNoConnect, "try --tls"},
		"TLS to a plain port":                           {append([]string{"-u", "rediss://" + plain.Addr(), "--sni", "redis.test", "--timeout", "300ms"}, trusted...), exitNoConnect, "connect"},
		"a certificate that has expired":                {append([]string{"-u", expired, "--sni", "redis.test"}, trusted...), exitNoConnect, "expired"},
		"an authority alone, where that is enough":      {[]string{"-u", open, "--sni", "redis.test", "--cacert", ca.File}, exitFine, ""},
		"another's client certificate":                  {[]string{"-u", address, "--sni", "redis.test", "--cacert", ca.File, "--cert", strayCert, "--key", strayKey}, exitNoConnect, "connect"},
		"a certificate without TLS":                     {append([]string{"-u", "redis://" + plain.Addr()}, client...), exitUsage, "without TLS"},
		"--insecure without TLS":                        {[]string{"-u", "redis://" + plain.Addr(), "--insecure"}, exitUsage, "without TLS"},
		"a certificate without key":                     {[]string{"-u", address, "--cert", clientCert}, exitUsage, "belong together"},
		"no certificates in the CA":                     {[]string{"-u", address, "--cacert", clientKey}, exitUsage, "no certificate"},
		"a CA file that is not there":                   {[]string{"-u", address, "--cacert", ca.File + "x"}, exitUsage, "no such file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := locktop(t, append([]string{"list", "--json"}, tt.args...)...)
			check.True(t, o.code == tt.code && strings.Contains(o.errors, tt.said),
				"exit code %d, want %d; on stderr %q, want it to say %q", o.code, tt.code, o.errors, tt.said)
			// A connection that fails is one line of error, and locktop tries no other way.
			check.True(t, o.code == exitFine || strings.Count(o.errors, "\n") == 1 && (o.out == "" || strings.Contains(o.out, "error")),
				"on stderr %q, on stdout %q", o.errors, o.out)
		})
	}
}

// A context has the files of TLS, and flags precede them. The lines to paste work without
// the flags that the context has.
func TestAContextHasTheFilesOfTLS(t *testing.T) {
	testtier.Long(t, "it makes certificates for a server")
	ca := check.NewAuthority(t)
	cert, key := ca.Issue(t, "server", leaf())
	clientCert, clientKey := ca.Issue(t, "client", leaf())
	strayCert, strayKey := check.NewAuthority(t).Issue(t, "stray", leaf())
	plain, port := secured(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File)
	_, shown := ca.Issue(t, "shown", leaf())
	_, writable := ca.Issue(t, "writable", leaf())
	copied(t, clientKey, shown, 0o644)
	copied(t, clientKey, writable, 0o660)

	url := "url: 'rediss://127.0.0.1:" + port + "', "
	pair := "cert: " + clientCert + ", key: " + clientKey
	trust := "cacert: " + ca.File + ", sni: redis.test, "
	configure(t, 0o600, "contexts:",
		"  good: {"+url+trust+pair+"}",
		"  plain: {url: 'redis://"+plain.Addr()+"', "+trust+pair+"}",
		"  named: {"+url+"cacert: "+ca.File+", sni: other.test, "+pair+"}",
		"  system: {"+url+"sni: redis.test, "+pair+"}",
		"  lax: {"+url+"insecure: true, "+pair+"}",
		"  strict: {"+url+trust+"insecure: false, "+pair+"}",
		"  stray: {"+url+trust+"cert: "+strayCert+", key: "+strayKey+"}",
		"  mixed: {"+url+trust+"cert: "+clientCert+", key: "+strayKey+"}",
		"  single: {"+url+trust+"cert: "+clientCert+"}",
		"  bare: {"+url+trust+"}",
		"  relative: {"+url+"cacert: ca.crt, "+pair+"}",
		"  missing: {"+url+trust+"cert: "+clientCert+", key: "+clientKey+"x}",
		"  noca: {"+url+"cacert: "+ca.File+"x, "+pair+"}",
		"  wrongca: {"+url+"cacert: "+clientKey+", "+pair+"}",
		"  shown: {"+url+trust+"cert: "+clientCert+", key: "+shown+"}",
		"  writable: {"+url+trust+"cert: "+clientCert+", key: "+writable+"}",
	)
	send(t, plain.Addr(), "SET", "lock:a", token)
	for _, tt := range []struct {
		context, flags string
		code           int
		said           string
	}{
		{"good", "", exitFine, ""},
		{"strict", "", exitFine, ""},
		{"named", "--sni redis.test", exitFine, ""},
		{"system", "--cacert " + ca.File, exitFine, ""},
		{"bare", "--cert " + clientCert + " --key " + clientKey, exitFine, ""},
		{"stray", "--cert " + clientCert + " --key " + clientKey, exitFine, ""},
		{"plain", "-p " + port, exitUsage, "--context already says where"},
		{"good", "--sni other.test", exitNoConnect, "certificate"},
		{"good", "--cert " + strayCert + " --key " + strayKey, exitNoConnect, "connect"},
		{"named", "", exitNoConnect, "certificate"},
		{"system", "", exitNoConnect, "certificate"},
		{"stray", "", exitNoConnect, "connect"},
		{"bare", "", exitNoConnect, "connect"},
		{"lax", "", exitFine, "warning: insecure of context lax: the server's certificate is not verified"},
		{"strict", "--insecure", exitFine, "warning: --insecure: the server's certificate is not verified"},
		{"lax", "--insecure=false", exitNoConnect, "certificate"},
		{"plain", "", exitUsage, "cacert of context plain on a connection without TLS (add --tls"},
		{"single", "", exitUsage, "cert and key of context single belong together"},
		{"good", "--cert " + clientCert, exitUsage, "--cert and --key belong together"},
		{"mixed", "", exitUsage, "read cert and key of context mixed: tls: private key does not match"},
		{"relative", "", exitUsage, "cacert of context relative is not an absolute path"},
		{"missing", "", exitUsage, "read cert and key of context missing: open " + clientKey + "x: no such file"},
		{"noca", "", exitUsage, "read cacert of context noca: open " + ca.File + "x: no such file"},
		{"wrongca", "", exitUsage, "cacert of context wrongca " + clientKey + " holds no certificate"},
		{"shown", "", exitFine, "warning: " + shown + " can be read by every user of this machine (chmod 600 " + shown + ")"},
		{"writable", "", exitUsage, "read cert and key of context writable: others may change " + writable + " (chmod 600 " + writable + ")"},
	} {
		got := locktop(t, append([]string{"list", "--json", "--context", tt.context}, strings.Fields(tt.flags)...)...)
		lines := 1
		if tt.said == "" {
			lines = 0
		}
		var note jsonNote
		_ = json.Unmarshal([]byte(got.errors), &note) // there may be none
		said := note.Error + " (" + note.Hint + ") warning: " + note.Warning
		check.True(t, got.code == tt.code && strings.Contains(said, tt.said) && strings.Count(got.errors, "\n") == lines,
			"%s %s: exit code %d, %q; want %d, %q", tt.context, tt.flags, got.code, got.errors, tt.code, tt.said)
		check.True(t, (got.code == exitFine) == strings.Contains(got.out, `"key":"lock:a"`), "%s %s: %s", tt.context, tt.flags, got.out)
	}

	var errs []string
	for _, way := range []string{"locktop", "redis-cli"} {
		send(t, plain.Addr(), "SET", "lock:a", token)
		release, line := printedLines(t, "lock:a", "--context", "good")
		if strings.Contains(release, "--cacert") || !strings.Contains(line, "--cacert "+ca.File) {
			errs = append(errs, release, line)
		}
		line = printedLine(t, way, "lock:a", "--context", "good")
		pasted(t, line, "XDG_CONFIG_HOME="+os.Getenv("XDG_CONFIG_HOME"))
		if value(t, plain.Addr(), "lock:a") != "" {
			errs = append(errs, line)
		}
	}
	check.True(t, len(errs) == 0, "the lines of inspect: %q", errs)
	send(t, plain.Addr(), "SET", "lock:a", token)
	release, _ := printedLines(t, "lock:a", "--context", "lax", "--insecure=false", "--cacert", ca.File, "--sni", "redis.test")
	check.True(t, strings.Contains(release, "--insecure=false"), "the line does not verify the server: %s", release)
}

// copied copies a file, with a mode.
func copied(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	text, err := os.ReadFile(from)
	check.NoError(t, errors.Join(err, os.WriteFile(to, text, 0o600), os.Chmod(to, mode)))
}

func TestTheLinesThatInspectPrintsSpeakTLS(t *testing.T) {
	t.Parallel()
	ca := check.NewAuthority(t)
	cert, key := ca.Issue(t, "it's a server", leaf())
	plain, port := secured(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File)
	flags := []string{"-p", port, "--tls", "--sni", "redis.test", "--cacert", ca.File, "--cert", cert, "--key", key}
	for _, way := range []string{"locktop", "redis-cli"} {
		send(t, plain.Addr(), "SET", "lock:a", token)
		line := printedLine(t, way, "lock:a", flags...)
		check.True(t, strings.Contains(line, port), "another port than %s: %s", port, line)
		pasted(t, line)
		check.True(t, value(t, plain.Addr(), "lock:a") == "", "it is there yet: %s", line)
	}
}

// sentinelOf starts a Sentinel of a master at a port, with further lines of configuration.
func sentinelOf(t *testing.T, port string, lines ...string) *server.Child {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	config := append([]string{fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 1", servertest.SentinelMaster, port)}, lines...)
	s := check.Must(server.StartChild(ctx, servertest.WithConfig(strings.Join(config, "\n")+"\n", "--sentinel")))(t)
	t.Cleanup(func() { _ = s.Kill() })
	return s
}

// Sentinels have a user, a password and TLS of their own. Nothing of them reaches the servers,
// and nothing of the servers reaches them.
func TestSentinelsHaveTheirOwnCredentialsAndTLS(t *testing.T) {
	testtier.Long(t, "it starts Sentinels")
	const serverPass = "the-servers"
	ca := check.NewAuthority(t)
	cert, key := ca.Issue(t, "server", leaf())
	tls := []string{"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File, "--tls-auth-clients", "no"}
	master, tlsPort := secured(t, tls...)
	send(t, master.Addr(), "SET", "lock:a", token, "PX", "600000")
	send(t, master.Addr(), "CONFIG", "SET", "requirepass", serverPass)
	_, port, _ := strings.Cut(master.Addr(), ":")
	secret := "requirepass " + canary
	plain := sentinelOf(t, port, secret)
	sentinelTLS := ""
	for i := range tls {
		if i%2 == 0 {
			sentinelTLS += strings.TrimPrefix(tls[i], "--") + " " + tls[i+1] + "\n"
		}
	}
	free := freePort(t)
	withTLS := sentinelOf(t, port, secret, sentinelTLS+"tls-port "+free)
	ofTLS := sentinelOf(t, tlsPort, secret)
	for _, s := range []*server.Child{plain, withTLS, ofTLS} {
		awaitSentinel(t, s.Addr())
	}

	t.Setenv("REDISCLI_AUTH", serverPass)
	trust := "--cacert " + ca.File + " --sni redis.test"
	pass := "--sentinel-pass " + canary
	tests := map[string]struct {
		sentinel, flags string
		code            int
		said            string
	}{
		"a password":            {plain.Addr(), pass, exitFine, ""},
		"no password":           {plain.Addr(), "", exitNoConnect, "see --sentinel-user and --sentinel-pass; "},
		"another password":      {plain.Addr(), "--sentinel-pass c4nary-f00d", exitNoConnect, "see --sentinel-user and --sentinel-pass; "},
		"a user without one":    {plain.Addr(), "--sentinel-user ann", exitUsage, "--sentinel-user without a password"},
		"TLS of the Sentinel":   {"127.0.0.1:" + free, pass + " --sentinel-tls " + trust, exitFine, ""},
		"TLS of the servers":    {ofTLS.Addr(), pass + " --tls --sentinel-tls=false " + trust, exitFine, ""},
		"TLS, and none there":   {plain.Addr(), pass + " --sentinel-tls " + trust, exitNoConnect, "ask the Sentinel at"},
		"no TLS, and there":     {"127.0.0.1:" + free, pass, exitNoConnect, "does the Sentinel expect TLS? try --sentinel-tls"},
		"TLS of another name":   {"127.0.0.1:" + free, pass + " --sentinel-tls --sni other.test --cacert " + ca.File, exitNoConnect, "certificate"},
		"a CA without any TLS":  {plain.Addr(), pass + " --cacert " + ca.File, exitUsage, "--cacert on a connection without TLS"},
		"no value that is bool": {plain.Addr(), pass + " --sentinel-tls=maybe", exitUsage, "--sentinel-tls"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			for _, command := range []string{"list", "load"} {
				args := []string{command, "--json", "--sentinel", c.sentinel, "--master", servertest.SentinelMaster}
				if command == "load" {
					args = append(args, "--clients", "2", "--duration", "1s", "--hold", "5ms", "--think", "5ms")
				}
				got := locktop(t, append(args, strings.Fields(c.flags)...)...)
				said := got.errors
				if strings.Contains(c.flags, "--sentinel-pass") && c.code != exitUsage {
					warning, rest, _ := strings.Cut(said, "\n")
					check.Contains(t, warning, "--sentinel-pass can be read by every user of this machine", "the first line")
					said = rest
				}
				if got.code != c.code || !strings.Contains(said, c.said) || len(leaked(map[string]string{"stdout": got.out, "stderr": got.errors})) > 0 {
					t.Errorf("%s: exit code %d, %q; want %d, %q", command, got.code, got.errors, c.code, c.said)
				}
				check.True(t, c.code == exitFine || strings.Count(said, "\n") == 1, "%s: more than one line: %q", command, said)
				check.True(t, c.code != exitFine || command != "list" || strings.Contains(got.out, `"key":"lock:a"`), "no lock: %s", got.out)
			}
		})
	}
	t.Run("environment", func(t *testing.T) {
		t.Setenv("LOCKTOP_SENTINEL_PASS", canary)
		got := locktop(t, "list", "--sentinel", plain.Addr(), "--master", servertest.SentinelMaster)
		check.True(t, got.code == exitFine && got.errors == "", "%+v", got)
	})
	t.Run("context", func(t *testing.T) {
		t.Setenv("REDISCLI_AUTH", "")
		t.Setenv("LOCKTOP_URL", "redis://127.0.0.1:1")
		configure(t, 0o600, "contexts:",
			"  a: {url: 'redis://:"+serverPass+"@', sentinel: ['127.0.0.1:"+free+"'], master: "+servertest.SentinelMaster+", sentinel_pass: '"+canary+"', sentinel_tls: true}",
			"  e: {url: 'redis://:"+serverPass+"@', sentinel: ['127.0.0.1:"+free+"'], master: "+servertest.SentinelMaster+", sentinel_pass: '"+canary+"', sentinel_tls: true, cacert: "+ca.File+", sni: redis.test}",
			"  b: {url: 'redis://a:1', sentinel: [b]}",
			"  c: {sentinel_user: b}",
			"  d: {url: 'redis://:"+serverPass+"@', sentinel: ['"+plain.Addr()+"'], master: "+servertest.SentinelMaster+", sentinel_pass: wrong}")
		for _, flags := range []string{"--context a " + trust, "--context e"} {
			got := locktop(t, append([]string{"list", "--json"}, strings.Fields(flags)...)...)
			check.True(t, got.code == exitFine && got.errors == "" && strings.Contains(got.out, `"key":"lock:a"`), "%s: %+v", flags, got)
		}
		got := locktop(t, append([]string{"inspect", "lock:a", "--context", "a"}, strings.Fields(trust)...)...)
		check.True(t, strings.Contains(got.out, "--context a") && !strings.Contains(got.out, "--sentinel"), "the lines to paste: %s", got.out)
		for name, want := range map[string]string{
			"b": "context b has the address of a server and those of Sentinels",
			"c": "context c has options of Sentinels, but no sentinel",
		} {
			locktop(t, "list", "--context", name).fails(t, exitUsage, want)
		}
		t.Setenv("LOCKTOP_SENTINEL_PASS", canary) // the context precedes the environment
		locktop(t, "list", "--context", "d").fails(t, exitNoConnect)
		locktop(t, "list", "--context", "d", "--sentinel-pass", canary).says(t, exitFine)
		path := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "locktop", "config.yaml")
		check.NoError(t, os.Chmod(path, 0o644))
		locktop(t, "list", "--context", "d").fails(t, exitUsage, "holds a password, and others may read it")
	})
}

func TestTheDocumentedUserOfSentinelsIsEnough(t *testing.T) {
	master := servertest.RedisForTest(t)
	send(t, master.Addr(), "SET", "lock:a", token, "PX", "600000")
	if !knows(t, master.Addr(), "getex") {
		t.Skip("Sentinels have users since Redis 6.2")
	}
	_, port, _ := strings.Cut(master.Addr(), ":")
	s := sentinelOf(t, port, "user default off", "user ann on >"+canary+" -@all +"+strings.Join(allowedOfSentinels(t), " +"))
	t.Setenv("LOCKTOP_SENTINEL_PASS", canary)
	for _, flags := range []string{"", "--prefer-replica"} {
		got := locktop(t, append([]string{"list", "--json", "--sentinel", s.Addr(), "--master", servertest.SentinelMaster, "--sentinel-user", "ann"}, strings.Fields(flags)...)...)
		check.True(t, got.code == exitFine && got.errors == "" && strings.Contains(got.out, `"key":"lock:a"`), "%s: %+v", flags, got)
	}
}

// awaitSentinel waits until a Sentinel answers.
func awaitSentinel(t *testing.T, addr string) {
	t.Helper()
	rdb := server.NewClient(addr, server.ClientOptions{Password: canary, NoRetry: true})
	defer rdb.Close()
	eventually(t, func() bool {
		return rdb.Do(t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", servertest.SentinelMaster).Err() == nil
	})
}
