// Package web serves HTTP with the TLS certificates and the users of a configuration file
// in the format of the Prometheus exporter-toolkit (web.config.file).
//
// That library itself is not used: its landing page needs html/template, which makes the
// program half as large again, and 18 modules.
package web

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"
)

// config is the content of a configuration file.
type config struct {
	TLS   *tlsSection       `yaml:"tls_server_config"`
	HTTP  httpSection       `yaml:"http_server_config"`
	Users map[string]string `yaml:"basic_auth_users"` // bcrypt hashes of their passwords
}

type httpSection struct {
	HTTP2   *bool             `yaml:"http2"` // nil: on
	Headers map[string]string `yaml:"headers"`
}

// tlsSection describes the TLS of a server. Each file may also be given as text.
type tlsSection struct {
	CertFile     string     `yaml:"cert_file"`
	KeyFile      string     `yaml:"key_file"`
	CAFile       string     `yaml:"client_ca_file"`
	Cert         string     `yaml:"cert"`
	Key          string     `yaml:"key"`
	CA           string     `yaml:"client_ca"`
	ClientAuth   string     `yaml:"client_auth_type"`
	AllowedSANs  []string   `yaml:"client_allowed_sans"`
	MinVersion   tlsVersion `yaml:"min_version"`
	MaxVersion   tlsVersion `yaml:"max_version"`
	CipherSuites []cipher   `yaml:"cipher_suites"`
	Curves       []curve    `yaml:"curve_preferences"`
	PreferServer bool       `yaml:"prefer_server_cipher_suites"` // without effect: Go chooses the suite
}

// load reads a configuration file. Paths in it are relative to its directory. Its errors
// quote no hash and no key.
func load(path string) (*config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const most = 1 << 20 // bytes
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(raw) > most {
		err = fmt.Errorf("%s has more than 1 MiB", path)
	}
	if err != nil {
		return nil, err
	}
	var c config
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, yamlError(err))
	}
	if t := c.TLS; t != nil {
		for _, file := range []*string{&t.CertFile, &t.KeyFile, &t.CAFile} {
			if *file != "" && !filepath.IsAbs(*file) {
				*file = filepath.Join(filepath.Dir(path), *file)
			}
		}
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &c, nil
}

// yamlError returns the first line of an error of the YAML parser without the values that
// it quotes.
func yamlError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimSpace(strings.TrimPrefix(text, "unmarshal errors:"))
	text, _, _ = strings.Cut(text, "\n")
	if before, _, quotes := strings.Cut(text, "`"); quotes {
		text = before + "a value"
	}
	return errors.New(strings.ReplaceAll(text, " in type web.config", ""))
}

// check returns an error for a configuration that no server can use.
func (c *config) check() error {
	for user, hash := range c.Users {
		if user == "" || strings.Contains(user, ":") {
			return fmt.Errorf("basic_auth_users: %q cannot be the name of a user", user)
		}
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return fmt.Errorf("basic_auth_users: the value of %s is not a bcrypt hash; htpasswd -nBC 10 %s prints one", user, user)
		}
	}
	for name := range c.HTTP.Headers {
		if !slices.Contains(allowedHeaders(), textproto.CanonicalMIMEHeaderKey(name)) {
			return fmt.Errorf("http_server_config: header %s cannot be set; there are %s", name, strings.Join(allowedHeaders(), ", "))
		}
	}
	if c.TLS == nil {
		return nil
	}
	_, err := c.TLS.server(c.http2())
	return err
}

// allowedHeaders lists the headers that a configuration may set.
func allowedHeaders() []string {
	return []string{"Strict-Transport-Security", "X-Content-Type-Options", "X-Frame-Options", "X-Xss-Protection", "Content-Security-Policy"}
}

func (c *config) http2() bool { return c.HTTP.HTTP2 == nil || *c.HTTP.HTTP2 }

// files lists the files whose change changes the configuration of TLS.
func (c *config) files() []string {
	if c.TLS == nil {
		return nil
	}
	return slices.DeleteFunc([]string{c.TLS.CertFile, c.TLS.KeyFile, c.TLS.CAFile}, func(f string) bool { return f == "" })
}

// server reads the certificates and returns the configuration of a server.
func (s *tlsSection) server(http2 bool) (*tls.Config, error) {
	cert, err := s.text("cert", s.Cert, s.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := s.text("key", s.Key, s.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls_server_config: %w", err)
	}
	t := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   cmp.Or(uint16(s.MinVersion), tls.VersionTLS12),
		MaxVersion:   uint16(s.MaxVersion),
		NextProtos:   []string{"http/1.1"},
	}
	if http2 {
		t.NextProtos = []string{"h2", "http/1.1"}
	}
	if t.MaxVersion != 0 && t.MinVersion > t.MaxVersion {
		return nil, errors.New("tls_server_config: min_version is above max_version")
	}
	for _, c := range s.CipherSuites {
		t.CipherSuites = append(t.CipherSuites, uint16(c))
	}
	for _, c := range s.Curves {
		t.CurvePreferences = append(t.CurvePreferences, tls.CurveID(c))
	}
	return t, s.setClients(t)
}

// text returns the text of a value, or the content of its file.
func (s *tlsSection) text(name, text, file string) ([]byte, error) {
	switch {
	case text != "" && file != "":
		return nil, fmt.Errorf("tls_server_config: %s and %s_file exclude each other", name, name)
	case text == "" && file == "":
		return nil, fmt.Errorf("tls_server_config: %s_file is missing", name)
	case text != "":
		return []byte(text), nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tls_server_config: %w", err)
	}
	return raw, nil
}

// setClients sets which certificates clients must have.
func (s *tlsSection) setClients(t *tls.Config) error {
	auth, known := map[string]tls.ClientAuthType{
		"": tls.NoClientCert, "NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
		"RequireAnyClientCert": tls.RequireAnyClientCert, "RequireClientCert": tls.RequireAnyClientCert,
		"VerifyClientCertIfGiven": tls.VerifyClientCertIfGiven, "RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
	}[s.ClientAuth]
	if !known {
		return fmt.Errorf("tls_server_config: unknown client_auth_type %q", s.ClientAuth)
	}
	t.ClientAuth = auth
	hasCA := s.CA != "" || s.CAFile != ""
	verifies := auth == tls.VerifyClientCertIfGiven || auth == tls.RequireAndVerifyClientCert
	switch {
	case hasCA && auth == tls.NoClientCert:
		return errors.New("tls_server_config: client_ca_file without client_auth_type: no client certificate would be asked for")
	case !hasCA && verifies:
		return fmt.Errorf("tls_server_config: client_auth_type %s needs client_ca_file", s.ClientAuth)
	case len(s.AllowedSANs) > 0 && auth != tls.RequireAndVerifyClientCert:
		return errors.New("tls_server_config: client_allowed_sans needs client_auth_type RequireAndVerifyClientCert")
	}
	if hasCA {
		pem, err := s.text("client_ca", s.CA, s.CAFile)
		if err != nil {
			return err
		}
		t.ClientCAs = x509.NewCertPool()
		if !t.ClientCAs.AppendCertsFromPEM(pem) {
			return errors.New("tls_server_config: client_ca_file has no certificate")
		}
	}
	if len(s.AllowedSANs) > 0 {
		t.VerifyConnection = s.checkSAN
	}
	return nil
}

// checkSAN returns an error for a client whose certificate has none of the allowed names.
func (s *tlsSection) checkSAN(c tls.ConnectionState) error {
	cert := c.PeerCertificates[0]
	names := slices.Concat(cert.DNSNames, cert.EmailAddresses)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	if slices.ContainsFunc(names, func(n string) bool { return slices.Contains(s.AllowedSANs, n) }) {
		return nil
	}
	return errors.New("the certificate of the client has none of client_allowed_sans")
}

// tlsVersion is a version of TLS, as TLS12.
type tlsVersion uint16

// UnmarshalYAML implements [yaml.Unmarshaler].
func (v *tlsVersion) UnmarshalYAML(n *yaml.Node) error {
	known := map[string]uint16{"TLS10": tls.VersionTLS10, "TLS11": tls.VersionTLS11, "TLS12": tls.VersionTLS12, "TLS13": tls.VersionTLS13}
	id, ok := known[n.Value]
	if !ok {
		return fmt.Errorf("line %d: unknown TLS version; there are TLS10, TLS11, TLS12, TLS13", n.Line)
	}
	*v = tlsVersion(id)
	return nil
}

// cipher is a cipher suite, as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
type cipher uint16

// UnmarshalYAML implements [yaml.Unmarshaler].
func (c *cipher) UnmarshalYAML(n *yaml.Node) error {
	for _, known := range tls.CipherSuites() {
		if known.Name == n.Value {
			*c = cipher(known.ID)
			return nil
		}
	}
	return fmt.Errorf("line %d: unknown or insecure cipher suite", n.Line)
}

// curve is an elliptic curve, as CurveP256 or X25519.
type curve tls.CurveID

// UnmarshalYAML implements [yaml.Unmarshaler].
func (c *curve) UnmarshalYAML(n *yaml.Node) error {
	known := map[string]tls.CurveID{"CurveP256": tls.CurveP256, "CurveP384": tls.CurveP384, "CurveP521": tls.CurveP521, "X25519": tls.X25519}
	id, ok := known[n.Value]
	if !ok {
		return fmt.Errorf("line %d: unknown curve; there are CurveP256, CurveP384, CurveP521, X25519", n.Line)
	}
	*c = curve(id)
	return nil
}
