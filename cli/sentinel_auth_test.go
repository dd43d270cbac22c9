package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// sentinelOf starts a Sentinel of a master at a port, with further lines of configuration.
func sentinelOf(t *testing.T, port string, lines ...string) *server.Child {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	config := append([]string{fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 1", server.SentinelMaster, port)}, lines...)
	s := check.Must(server.StartChild(ctx, server.ChildOptions{Args: []string{"--sentinel"}, Config: strings.Join(config, "\n") + "\n"}))(t)
	t.Cleanup(func() { _ = s.Kill() })
	return s
}

// Sentinels have a user, a password and TLS of their own. Nothing of them reaches the servers,
// and nothing of the servers reaches them.
func TestSentinelsHaveTheirOwnCredentialsAndTLS(t *testing.T) {
	testtier.Long(t, "it starts Sentinels")
	const serverPass = "the-servers"
	ca := newAuthority(t)
	cert, key := ca.issue(t, "server", leaf())
	tls := []string{"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file, "--tls-auth-clients", "no"}
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
	trust := "--cacert " + ca.file + " --sni redis.test"
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
		"TLS of another name":   {"127.0.0.1:" + free, pass + " --sentinel-tls --sni other.test --cacert " + ca.file, exitNoConnect, "certificate"},
		"a CA without any TLS":  {plain.Addr(), pass + " --cacert " + ca.file, exitUsage, "--cacert on a connection without TLS"},
		"no value that is bool": {plain.Addr(), pass + " --sentinel-tls=maybe", exitUsage, "--sentinel-tls"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			for _, command := range []string{"list", "load"} {
				args := []string{command, "--json", "--sentinel", c.sentinel, "--master", server.SentinelMaster}
				if command == "load" {
					args = append(args, "--clients", "2", "--duration", "1s", "--hold", "5ms", "--think", "5ms")
				}
				got := locktop(t, append(args, strings.Fields(c.flags)...)...)
				said := got.errors
				if strings.Contains(c.flags, "--sentinel-pass") && c.code != exitUsage {
					said = afterWarning(t, said)
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
		got := locktop(t, "list", "--sentinel", plain.Addr(), "--master", server.SentinelMaster)
		check.True(t, got.code == exitFine && got.errors == "", "%+v", got)
	})
	t.Run("context", func(t *testing.T) {
		t.Setenv("REDISCLI_AUTH", "")
		t.Setenv("LOCKTOP_URL", "redis://127.0.0.1:1")
		configure(t, 0o600, "contexts:",
			"  a: {url: 'redis://:"+serverPass+"@', sentinel: ['127.0.0.1:"+free+"'], master: "+server.SentinelMaster+", sentinel_pass: '"+canary+"', sentinel_tls: true}",
			"  e: {url: 'redis://:"+serverPass+"@', sentinel: ['127.0.0.1:"+free+"'], master: "+server.SentinelMaster+", sentinel_pass: '"+canary+"', sentinel_tls: true, cacert: "+ca.file+", sni: redis.test}",
			"  b: {url: 'redis://a:1', sentinel: [b]}",
			"  c: {sentinel_user: b}",
			"  d: {url: 'redis://:"+serverPass+"@', sentinel: ['"+plain.Addr()+"'], master: "+server.SentinelMaster+", sentinel_pass: wrong}")
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
	master := server.ForTest(t)
	send(t, master.Addr(), "SET", "lock:a", token, "PX", "600000")
	if !knows(t, master.Addr(), "getex") {
		t.Skip("Sentinels have users since Redis 6.2")
	}
	_, port, _ := strings.Cut(master.Addr(), ":")
	s := sentinelOf(t, port, "user default off", "user ann on >"+canary+" -@all +"+strings.Join(allowedOfSentinels(t), " +"))
	t.Setenv("LOCKTOP_SENTINEL_PASS", canary)
	for _, flags := range []string{"", "--prefer-replica"} {
		got := locktop(t, append([]string{"list", "--json", "--sentinel", s.Addr(), "--master", server.SentinelMaster, "--sentinel-user", "ann"}, strings.Fields(flags)...)...)
		check.True(t, got.code == exitFine && got.errors == "" && strings.Contains(got.out, `"key":"lock:a"`), "%s: %+v", flags, got)
	}
}

// afterWarning returns the lines after the one about the password on the command line.
func afterWarning(t *testing.T, said string) string {
	t.Helper()
	warning, rest, _ := strings.Cut(said, "\n")
	check.True(t, strings.Contains(warning, "--sentinel-pass can be read by every user of this machine"), "the first line is %q", warning)
	return rest
}

// awaitSentinel waits until a Sentinel answers.
func awaitSentinel(t *testing.T, addr string) {
	t.Helper()
	rdb := redis.NewSentinelClient(&redis.Options{Addr: addr, Password: canary, MaxRetries: -1, DisableIdentity: true})
	defer rdb.Close()
	eventually(t, func() bool { return rdb.GetMasterAddrByName(t.Context(), server.SentinelMaster).Err() == nil })
}
