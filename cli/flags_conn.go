package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// topologyFlags holds the flags that turn one address into several servers.
type topologyFlags struct {
	cluster       bool
	sentinels     []string
	master        string
	redlock       []string
	preferReplica bool
}

func (s *topologyFlags) addTo(set *pflag.FlagSet) {
	set.BoolVar(&s.cluster, "cluster", false, "all masters of the cluster that the server belongs to")
	set.StringSliceVar(&s.sentinels, "sentinel", nil, "`address` of a Sentinel, to ask for the master; may be repeated")
	set.StringVar(&s.master, "master", "mymaster", "`name` of the master, as the Sentinels know it")
	set.StringSliceVar(&s.redlock, "redlock", nil, "`URL`s of independent servers, whose locks are taken by majority")
	set.BoolVar(&s.preferReplica, "prefer-replica", false, "read from replicas of the cluster or the master where there are some; they may lag behind")
}

// check returns an error for flags that contradict each other.
func (s *topologyFlags) check(given func(flag string) bool) error {
	elsewhere := given("url") || given("host") || given("port") || given("socket")
	switch {
	case s.cluster && len(s.sentinels) > 0, s.cluster && len(s.redlock) > 0, len(s.sentinels) > 0 && len(s.redlock) > 0:
		return usageErrorf("", "--cluster, --sentinel and --redlock exclude each other")
	case elsewhere && len(s.sentinels) > 0:
		return usageErrorf("", "--sentinel already says where: leave out --url, --host, --port and --socket")
	case elsewhere && len(s.redlock) > 0:
		return usageErrorf("", "--redlock already says where: leave out --url, --host, --port and --socket")
	case given("master") && len(s.sentinels) == 0:
		return usageErrorf("as in --sentinel 10.0.0.1:26379 --master orders", "--master without --sentinel")
	case s.preferReplica && !s.cluster && len(s.sentinels) == 0:
		return usageErrorf("", "--prefer-replica needs --cluster or --sentinel, which know the replicas")
	}
	return nil
}

// sentinelAddresses returns the addresses of the Sentinels, with the default port
// if an address has none.
func (s *topologyFlags) sentinelAddresses() []string {
	all := make([]string, len(s.sentinels))
	for i, addr := range s.sentinels {
		if all[i] = addr; !strings.Contains(addr, ":") {
			all[i] = addr + ":26379"
		}
	}
	return all
}

// mode returns how the servers belong together; "" means one server, or a mode that
// the server reports.
func (s *topologyFlags) mode() string {
	switch {
	case s.cluster:
		return "cluster"
	case len(s.sentinels) > 0:
		return "sentinel"
	case len(s.redlock) > 0:
		return "redlock"
	default:
		return ""
	}
}

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
