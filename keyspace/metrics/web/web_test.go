package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"locktop/internal/check"
)

var serials int64

// newIdentity creates a certificate for a name, in files with that name.
func newIdentity(t *testing.T, ca *check.Authority, name string) tls.Certificate {
	t.Helper()
	serials++
	cert, key := ca.Issue(t, name, &x509.Certificate{
		SerialNumber: big.NewInt(serials), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	})
	return check.Must(tls.LoadX509KeyPair(cert, key))(t)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	check.NoError(t, os.WriteFile(name, []byte(text), 0o600))
}

// running is a Server that serves a page with the text "page".
type running struct {
	*Server
	url string

	mu    sync.Mutex
	notes []string
}

// start starts a server with this configuration, in a file in dir, until the test ends.
func start(t *testing.T, dir, config string) *running {
	t.Helper()
	path := filepath.Join(dir, "web.yml")
	write(t, path, config)
	r := &running{}
	s := check.Must(New(path, func(text string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notes = append(r.notes, text)
	}))(t)
	r.Server = s
	l := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	r.url = "http://" + l.Addr().String()
	if s.TLS() {
		r.url = "https://" + l.Addr().String()
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }))
	}()
	t.Cleanup(func() {
		stop()
		check.ErrorIs(t, <-ended, nil, "Serve")
	})
	return r
}

// get requests the page over a new connection.
func (r *running) get(t *testing.T, config *tls.Config, user, pass string) (*http.Response, string, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
	req := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, r.url, nil))(t)
	if user != "" {
		req.SetBasicAuth(user, pass)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// wants fails the test unless the page comes with this status.
func (r *running) wants(t *testing.T, what string, config *tls.Config, user, pass string, status int) *http.Response {
	t.Helper()
	resp, body, err := r.get(t, config, user, pass)
	check.NoError(t, err, "%s", what)
	check.True(t, resp.StatusCode == status && (status == http.StatusOK) == (body == "page"),
		"%s: %s %q, want %d", what, resp.Status, body, status)
	return resp
}

// refuses fails the test unless the connection is refused.
func (r *running) refuses(t *testing.T, what string, config *tls.Config) {
	t.Helper()
	_, body, err := r.get(t, config, "", "")
	check.True(t, err != nil, "%s: it is served %q", what, body)
}

func hashOf(t *testing.T, pass string) string {
	t.Helper()
	hash := check.Must(bcrypt.GenerateFromPassword([]byte(pass), bcrypt.MinCost))(t)
	return string(hash)
}

func trusting(t *testing.T, ca *check.Authority, own ...tls.Certificate) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(check.Must(os.ReadFile(ca.File))(t))
	return &tls.Config{RootCAs: pool, Certificates: own}
}

func TestOnlyTheUsersOfTheConfigurationGetThePage(t *testing.T) {
	r := start(t, t.TempDir(), "basic_auth_users:\n  ann: "+hashOf(t, "secret")+"\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\n")
	resp := r.wants(t, "no user", nil, "", "", http.StatusUnauthorized)
	check.True(t, resp.Header.Get("WWW-Authenticate") != "" && resp.Header.Get("X-Frame-Options") == "deny", "headers %v", resp.Header)
	for range 2 { // the second time from memory
		r.wants(t, "the user", nil, "ann", "secret", http.StatusOK)
		r.wants(t, "a wrong password", nil, "ann", "Secret", http.StatusUnauthorized)
		r.wants(t, "another user", nil, "bob", "secret", http.StatusUnauthorized)
		r.wants(t, "an empty password", nil, "ann", "", http.StatusUnauthorized)
	}
	write(t, r.path, "basic_auth_users:\n  ann: "+hashOf(t, "changed")+"\n")
	r.wants(t, "the old password", nil, "ann", "secret", http.StatusUnauthorized)
	r.wants(t, "the new password", nil, "ann", "changed", http.StatusOK)
}

// An unknown user takes as long as a wrong password.
func TestTheHashOfNobodyIsAsDearAsThatOfAUser(t *testing.T) {
	cost, err := bcrypt.Cost([]byte(nobody))
	check.True(t, err == nil && cost == 10, "cost %d, %v", cost, err)
	check.Equal(t, bcrypt.CompareHashAndPassword([]byte(nobody), nil), bcrypt.ErrMismatchedHashAndPassword, "compare")
}

func TestAServerWithoutAConfigurationServesAll(t *testing.T) {
	s, err := New("", func(string) {})
	check.Require(t, err == nil && !s.TLS() && s.Reload() == nil, "%v, TLS %v", err, s.TLS())
}

func TestTheServerHasTheCertificateOfTheConfiguration(t *testing.T) {
	ca := check.NewAuthority(t)
	first := newIdentity(t, ca, "server")
	r := start(t, ca.Dir, "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n")
	resp := r.wants(t, "TLS", trusting(t, ca), "", "", http.StatusOK)
	check.True(t, resp.TLS.PeerCertificates[0].SerialNumber.Cmp(first.Leaf.SerialNumber) == 0 && resp.ProtoMajor == 2,
		"certificate %v over %s", resp.TLS.PeerCertificates[0].SerialNumber, resp.Proto)
	old := trusting(t, ca)
	old.MaxVersion = tls.VersionTLS11
	r.refuses(t, "TLS 1.1", old)

	// A new certificate is used without a restart; a broken one is not.
	second := newIdentity(t, ca, "server")
	resp = r.wants(t, "after a change", trusting(t, ca), "", "", http.StatusOK)
	check.True(t, resp.TLS.PeerCertificates[0].SerialNumber.Cmp(second.Leaf.SerialNumber) == 0, "the server still has the old certificate")
	write(t, filepath.Join(ca.Dir, "server.crt"), "no certificate")
	for range 2 {
		r.wants(t, "with a broken certificate", trusting(t, ca), "", "", http.StatusOK)
	}
	r.mu.Lock()
	check.True(t, len(r.notes) == 1 && strings.Contains(r.notes[0], "the old web configuration stays"), "notes %q, want one", r.notes)
	r.mu.Unlock()
	check.True(t, r.Reload() != nil, "Reload accepts a broken certificate")
	write(t, r.path, "")
	err := r.Reload()
	check.True(t, err != nil && strings.Contains(err.Error(), "restart"), "without TLS: %v", err)
	r.wants(t, "after the attempt to switch TLS off", trusting(t, ca), "", "", http.StatusOK)
}

func TestHTTP2AndVersionsOfTLSAreThoseOfTheConfiguration(t *testing.T) {
	ca := check.NewAuthority(t)
	newIdentity(t, ca, "server")
	r := start(t, ca.Dir, "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  min_version: TLS13\n  curve_preferences: [X25519]\nhttp_server_config:\n  http2: false\n")
	resp := r.wants(t, "TLS 1.3", trusting(t, ca), "", "", http.StatusOK)
	check.True(t, resp.ProtoMajor == 1 && resp.TLS.Version == tls.VersionTLS13, "%s over TLS %x", resp.Proto, resp.TLS.Version)
	old := trusting(t, ca)
	old.MaxVersion = tls.VersionTLS12
	r.refuses(t, "TLS 1.2", old)
}

func TestClientsNeedTheCertificateOfTheConfiguration(t *testing.T) {
	ca, other := check.NewAuthority(t), check.NewAuthority(t)
	newIdentity(t, ca, "server")
	ann, bob := newIdentity(t, ca, "ann"), newIdentity(t, ca, "bob")
	r := start(t, ca.Dir, "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n  client_allowed_sans: [ann]\n")
	r.wants(t, "ann", trusting(t, ca, ann), "", "", http.StatusOK)
	r.refuses(t, "bob has another name", trusting(t, ca, bob))
	r.refuses(t, "no certificate", trusting(t, ca))
	r.refuses(t, "another authority", trusting(t, ca, newIdentity(t, other, "ann")))
}

// Each error is one line that names the key, and quotes no secret.
func TestAWrongConfigurationIsRefused(t *testing.T) {
	ca := check.NewAuthority(t)
	newIdentity(t, ca, "server")
	const pair = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
	for config, says := range map[string]string{
		"basic_auth_users:\n  ann: canary\n":                                         "not a bcrypt hash",
		"basic_auth_users:\n  'a:b': canary\n":                                       "cannot be the name of a user",
		"basic_auth_users: canary\n":                                                 "line 1",
		"users: {ann: canary}\n":                                                     "users not found",
		"\tcanary\n":                                                                 "",
		"tls_server_config: {cert_file: server.crt}\n":                               "key_file is missing",
		"tls_server_config: {key_file: server.key}\n":                                "cert_file is missing",
		pair + "  min_version: TLS09\n":                                              "line 4",
		pair + "  min_version: TLS13\n  max_version: TLS12\n":                        "above max_version",
		pair + "  cipher_suites: [canary]\n":                                         "cipher suite",
		pair + "  curve_preferences: [canary]\n":                                     "curve",
		pair + "  client_ca_file: server.crt\n":                                      "no client certificate would be asked for",
		pair + "  client_auth_type: RequireAndVerifyClientCert\n":                    "needs client_ca_file",
		pair + "  client_auth_type: Sometimes\n":                                     "unknown client_auth_type",
		pair + "  client_auth_type: RequestClientCert\n  client_allowed_sans: [a]\n": "client_allowed_sans needs",
		pair + "  cert: x\n":                                                         "exclude each other",
		"tls_server_config:\n  cert_file: absent.crt\n  key_file: server.key\n":      "no such file",
		"tls_server_config:\n  cert_file: server.key\n  key_file: server.crt\n":      "tls_server_config",
		"http_server_config:\n  headers: {Server: canary}\n":                         "header Server cannot be set",
		strings.Repeat("# canary\n", 1<<17):                                          "more than 1 MiB",
	} {
		path := filepath.Join(ca.Dir, "web.yml")
		write(t, path, config)
		_, err := New(path, func(string) {})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v, want %q", config, err, says)
		}
	}
	_, err := New(filepath.Join(ca.Dir, "absent.yml"), func(string) {})
	check.True(t, err != nil, "a file that does not exist is accepted")
}
