package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"

	"github.com/spf13/pflag"
)

// tlsFlags holds the values of the TLS flags.
type tlsFlags struct {
	tls, insecure          bool
	cacert, cert, key, sni string
}

func (s *tlsFlags) addTo(set *pflag.FlagSet) {
	set.BoolVar(&s.tls, "tls", false, "speak TLS (rediss:// does, too)")
	set.StringVar(&s.cacert, "cacert", "", "trust the authorities in this `file`, and no others")
	set.StringVar(&s.cert, "cert", "", "client certificate `file`")
	set.StringVar(&s.key, "key", "", "`file` with its private key")
	set.StringVar(&s.sni, "sni", "", "`name` that the server's certificate must have")
	set.BoolVar(&s.insecure, "insecure", false, "do not verify the server's certificate")
}

// title returns a warning for the title if the certificate is not verified.
func (s *tlsFlags) title() string {
	if s.insecure {
		return " (certificate not verified)"
	}
	return ""
}

// unused returns an error for a TLS flag on a connection without TLS. A user who
// names a certificate must not get an unencrypted connection.
func (s *tlsFlags) unused(given func(flag string) bool) error {
	for _, name := range []string{"cacert", "cert", "key", "sni", "insecure"} {
		if given(name) {
			return usageErrorf("add --tls, or connect to rediss://", "--%s on a connection without TLS", name)
		}
	}
	return nil
}

// config reads the files. Without --cacert it trusts the authorities of the system.
func (s *tlsFlags) config() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         s.sni,
		InsecureSkipVerify: s.insecure,
	}
	if s.cacert != "" {
		pem, err := os.ReadFile(s.cacert)
		if err != nil {
			return nil, usageErrorf("", "read --cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usageErrorf("it should begin with -----BEGIN CERTIFICATE-----", "--cacert %s holds no certificate", s.cacert)
		}
	}
	if (s.cert == "") != (s.key == "") {
		return nil, usageErrorf("", "--cert and --key belong together")
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, usageErrorf("", "read --cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// certificate reports whether err concerns the server's certificate.
func certificate(err error) bool {
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	return bad
}
