package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// tlsFlags holds the values of the TLS flags. A context gives those that no flag gives.
type tlsFlags struct {
	tls, insecure          bool
	cacert, cert, key, sni string
	of                     contextValues
}

func (s *tlsFlags) addTo(set *pflag.FlagSet) {
	set.BoolVar(&s.tls, "tls", false, "use TLS (as rediss:// does)")
	set.StringVar(&s.cacert, "cacert", "", "trust only the certificate authorities in this `file`")
	set.StringVar(&s.cert, "cert", "", "client certificate `file`")
	set.StringVar(&s.key, "key", "", "`file` with the private key of the client certificate")
	set.StringVar(&s.sni, "sni", "", "`name` that the server's certificate must have")
	set.BoolVar(&s.insecure, "insecure", false, "do not verify the server's certificate")
}

// tlsOptions are the flags that need TLS.
var tlsOptions = []string{"cacert", "cert", "key", "sni", "insecure"}

// checkUnused returns an error for a TLS option on a connection without TLS. A user who
// names a certificate must not get an unencrypted connection.
func (s *tlsFlags) checkUnused(given func(flag string) bool) error {
	for _, name := range tlsOptions {
		if given(name) || s.of.has(name) {
			return usagef("add --tls, or connect to rediss://", "%s on a connection without TLS", s.of.origin(name))
		}
	}
	return nil
}

// addAuthorities gives the process the authorities of Mozilla if the system has none, as in a container from scratch.
// Only a connection with TLS reads them: that takes milliseconds and megabytes.
var addAuthorities = sync.OnceFunc(func() {
	pool := x509.NewCertPool()
	for root := range bundle.Roots() {
		cert, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			panic(err)
		}
		if root.Constraint == nil {
			pool.AddCert(cert)
		} else {
			pool.AddCertWithConstraint(cert, root.Constraint)
		}
	}
	x509.SetFallbackRoots(pool)
})

// config reads the files. Without cacert it trusts the authorities of the system or, if it has none, those that
// the program has. It refuses a key that others can change.
func (s *tlsFlags) config() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         s.sni,
		InsecureSkipVerify: s.insecure,
	}
	if s.cacert == "" {
		addAuthorities()
	} else {
		pem, err := os.ReadFile(s.cacert)
		if err != nil {
			return nil, usagef("", "read %s: %w", s.of.origin("cacert"), err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("it should begin with -----BEGIN CERTIFICATE-----", "%s %s holds no certificate", s.of.origin("cacert"), s.cacert)
		}
	}
	if (s.cert == "") != (s.key == "") {
		return nil, usagef("", "%s belong together", s.of.origin("cert", "key"))
	}
	if s.cert != "" {
		pair, err := s.clientCertificate()
		if err != nil {
			return nil, usagef("", "read %s: %w", s.of.origin("cert", "key"), err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// clientCertificate reads the certificate and its key.
func (s *tlsFlags) clientCertificate() (tls.Certificate, error) {
	cert, err := os.ReadFile(s.cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readPrivate(s.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// flags returns the TLS flags, except --tls, with absolute paths. It leaves out those that
// the context gives if without is true.
func (s *tlsFlags) flags(without bool) []string {
	var flags []string
	for _, f := range [][2]string{{"cacert", s.cacert}, {"cert", s.cert}, {"key", s.key}, {"sni", s.sni}} {
		name, value := f[0], f[1]
		if value == "" || without && s.of.has(name) {
			continue
		}
		if name != "sni" {
			value = absolute(value)
		}
		flags = append(flags, "--"+name, value)
	}
	if s.insecure && !(without && s.of.has("insecure")) {
		flags = append(flags, "--insecure")
	}
	return flags
}

// isCertificate reports whether err concerns the server's certificate.
func isCertificate(err error) bool {
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	return bad
}
