package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for a test. Its files are PEM.
type Authority struct {
	Dir, File string // File is its own certificate, ca.crt in Dir
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

// NewAuthority returns an authority in a new directory.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{Dir: t.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.File, _ = a.Issue(t, "ca", a.cert)
	return a
}

// Issue writes a certificate and its key, signed by a. The first certificate that a issues is its own.
func (a *Authority) Issue(t testing.TB, name string, template *x509.Certificate) (cert, key string) {
	t.Helper()
	private := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	if a.key == nil {
		a.key = private
	}
	der := Must(x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key))(t)
	pkcs8 := Must(x509.MarshalPKCS8PrivateKey(private))(t)
	return a.write(t, name+".crt", "CERTIFICATE", der), a.write(t, name+".key", "PRIVATE KEY", pkcs8)
}

func (a *Authority) write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(a.Dir, name)
	NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}
