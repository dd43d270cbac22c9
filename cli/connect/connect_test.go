package connect

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

func TestTheConnectionIsNamedWhereTheACLAllowsIt(t *testing.T) {
	c := servertest.RedisForTest(t)
	connected := func(t *testing.T, args ...string) inspect.Client {
		t.Helper()
		tgt := check.Must(new(Session).Open(t.Context(), parsed(t, append([]string{"-u", "redis://" + c.Addr()}, args...)...), Prompt{}))(t)
		t.Cleanup(tgt.Close)
		return tgt.Client
	}
	rdb := connected(t)
	name := rdb.ClientGetName(t.Context()).Val()
	check.True(t, strings.HasPrefix(name, "locktop:") && name == keyspace.ConnectionName, "the connection is named %q", name)
	check.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "shy", "on", ">pw", "~*", "+@all", "-client", "-ping").Err())
	connected(t, "--user", "shy", "-a", "pw")
}

// The password of one server never goes to another, also not by the environment, and --tls
// of one server does not hold for another.
func TestElsewhereHasNoPasswordOfTheFlags(t *testing.T) {
	t.Setenv("REDISCLI_AUTH", "canary")
	c := parsed(t, "-a", "canary", "--user", "app", "--tls", "--cacert", "ca.pem", "-n", "3", "--sentinel", "127.0.0.1:26379", "--master", "m", "--timeout", "7s")
	for url, want := range map[string]endpoint{
		"redis://10.0.0.1:6380":            {network: "tcp", addr: "10.0.0.1:6380"},
		"rediss://app:own@10.0.0.1:6380/2": {network: "tcp", addr: "10.0.0.1:6380", user: "app", pass: "own", db: 2, tls: true},
	} {
		r := check.Must(c.Elsewhere("--allow", url).Resolve())(t)
		check.True(t, r.seeds[0] == want && r.flags.security.cacert == "ca.pem" && r.flags.timeout == 7*time.Second, "%s: %+v", url, r)
	}
}

// The nodes of a Redlock have one password: it is asked for once. The flags stay as they were parsed.
func TestASessionAsksForThePasswordOnce(t *testing.T) {
	c := parsed(t, "--askpass")
	var s Session
	prompt := Prompt{In: strings.NewReader("c4nary\n"), Out: io.Discard}
	for range 2 {
		r := check.Must(s.Resolve(t.Context(), c, prompt))(t)
		check.True(t, r.seeds[0].pass == "c4nary" && c.pass == "" && c.askPass, "the password is %q, and in the flags %q", r.seeds[0].pass, c.pass)
	}
}

func TestAChildProcessDoesNotGoThroughSSH(t *testing.T) {
	_, _, err := check.Must(parsed(t, "--ssh", "web-1").Resolve())(t).Child(t.Context(), "127.0.0.1:6379", 0)
	check.True(t, err != nil && strings.Contains(err.Error(), "does not go through --ssh"), "%v", err)
}

// A connection goes to permitted addresses only, also if a cluster announces others.
func TestOnlyPermittedAddressesAreDialled(t *testing.T) {
	t.Parallel()
	forbidden := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer forbidden.Close()
	node, err := miniserver.NewServer("127.0.0.1:0")
	check.NoError(t, err)
	defer node.Close()
	var announced [2]net.Addr // of the masters of the two halves of the slots
	_ = node.Register("CLUSTER", func(c *miniserver.Peer, _ string, args []string) {
		if !strings.EqualFold(args[0], "slots") {
			c.WriteBulk("")
			return
		}
		c.WriteLen(len(announced))
		for i, addr := range announced {
			host, port, _ := net.SplitHostPort(addr.String())
			number, _ := strconv.Atoi(port)
			c.WriteLen(3)
			c.WriteInt(8192 * i)
			c.WriteInt(8192*i + 8191)
			c.WriteLen(3)
			c.WriteBulk(host)
			c.WriteInt(number)
			c.WriteBulk(strings.Repeat(fmt.Sprint(i), 40))
		}
	})
	_ = node.Register("PING", func(c *miniserver.Peer, _ string, _ []string) { c.WriteInline("PONG") })
	permit := func(addr string) error {
		if addr != node.Addr().String() {
			return fmt.Errorf("%s is forbidden", addr)
		}
		return nil
	}
	want := forbidden.Addr().String() + " is forbidden"
	for _, announced = range [][2]net.Addr{{forbidden.Addr(), forbidden.Addr()}, {node.Addr(), forbidden.Addr()}} {
		flags := parsed(t, "-u", "redis://"+node.Addr().String(), "--cluster").Only(permit)
		if tgt, err := new(Session).Open(t.Context(), flags, Prompt{}); err == nil {
			tgt.Close()
			t.Error("the target is open")
		} else if err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	announced = [2]net.Addr{node.Addr(), node.Addr()}
	tgt := check.Must(new(Session).Open(t.Context(), parsed(t, "-u", "redis://"+node.Addr().String(), "--cluster").Only(permit), Prompt{}))(t)
	defer tgt.Close()
	rdb, _, err := tgt.Writer()
	check.NoError(t, err)
	announced = [2]net.Addr{forbidden.Addr(), forbidden.Addr()} // it changes during the run
	rdb.(*redis.ClusterClient).Options().DialerRetries = 1      // the default is five dials in 0.4 s
	rdb.(*redis.ClusterClient).ReloadState(t.Context())
	err = rdb.Get(t.Context(), "k").Err()
	check.True(t, err != nil && strings.Contains(err.Error(), want), "a later node: %v, want %s", err, want)
	check.NoError(t, forbidden.(*net.TCPListener).SetDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = forbidden.Accept()
	check.ErrorIs(t, err, os.ErrDeadlineExceeded, "there is a connection")
}

// A master without slots may be importing some, and then it has keys.
func TestMastersWithoutSlotsAreLookedAt(t *testing.T) {
	const nodes = `a 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-16383 [5->-b]
b 10.0.0.2:7000@17000,host master - 0 0 2 connected
c 10.0.0.3:7000@17000 slave a 0 0 1 connected
d 10.0.0.4:7000@17000 master,fail - 0 0 4 disconnected
e 10.0.0.5:7000@17000 master,fail? - 0 0 4 connected
f :0@0 master,noaddr - 0 0 5 disconnected
`
	seed := endpoint{network: "tcp", addr: "10.0.0.1:7000", user: "u", pass: "p"}
	var got []string
	for _, e := range withImporters([]endpoint{seed}, nodes, seed) {
		got = append(got, e.addr+" as "+e.user)
	}
	want := "10.0.0.1:7000 as u, 10.0.0.2:7000 as u"
	check.True(t, strings.Join(got, ", ") == want, "it looks at %q, want %q", got, want)
}

// The first server in order that answers soon is used. The search does not wait for servers that do not answer.
func TestTheFirstAnswerIsTaken(t *testing.T) {
	down := errors.New("down")
	type server struct {
		after time.Duration
		err   error
	}
	for name, c := range map[string]struct {
		all   []server
		want  int
		err   error
		takes time.Duration
	}{
		"all are well":          {[]server{{after: 2 * time.Millisecond}, {after: time.Millisecond}}, 0, nil, 2 * time.Millisecond},
		"the first hangs":       {[]server{{after: time.Minute}, {after: time.Millisecond}}, 1, nil, time.Millisecond + firstGrace},
		"the first is down":     {[]server{{err: down}, {after: time.Millisecond}, {after: 0}}, 1, nil, time.Millisecond},
		"the last hangs":        {[]server{{after: time.Millisecond}, {after: time.Minute}}, 0, nil, time.Millisecond},
		"one answers very late": {[]server{{err: down}, {after: 5 * time.Second}}, 1, nil, 5 * time.Second},
		"none answers":          {[]server{{err: down}, {err: errors.New("other")}}, 0, down, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ns := make([]int, len(c.all))
				for i := range ns {
					ns[i] = i
				}
				got, err := firstAnswer(ns, func(n int) (int, error) {
					time.Sleep(c.all[n].after)
					return n, c.all[n].err
				})
				took := time.Since(began)
				time.Sleep(time.Hour) // the late servers
				check.True(t, got == c.want && errors.Is(err, c.err) && took == c.takes,
					"%d, %v after %v; want %d, %v after %v", got, err, took, c.want, c.err, c.takes)
			})
		})
	}
}

// Another process does not read the context: it gets the files of TLS as flags. The line of an
// alert names the context, which has them.
func TestTheFilesOfAContextReachOtherProcesses(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home) // other systems have another directory
	t.Setenv("HOME", home)
	t.Setenv("AppData", home)
	path := check.Must(ConfigurationPath())(t)
	ca := filepath.Join(home, "ca.crt")
	text := "contexts: {prod: {url: 'rediss://10.0.0.1', cacert: '" + ca + "', cert: '" + ca + "', key: '" + ca + "', sni: redis.test, insecure: true}}"
	check.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
	c := parsed(t, "--context", "prod")
	for range 2 { // export reads it twice
		check.Must(c.Context())(t)
	}
	const want = "--cacert CA --cert CA --key CA --sni redis.test --insecure"
	short := func(flags []string) string { return strings.ReplaceAll(strings.Join(flags, " "), ca, "CA") }
	r := check.Must(c.Resolve())(t)
	args, _, err := r.Child(t.Context(), "10.0.0.1:6379", 0)
	got := short(args)
	check.True(t, err == nil && got == "-u rediss://10.0.0.1:6379 --timeout 2s "+want, "a child: %s, %v", got, err)
	got = short(r.RedisCLI())
	check.True(t, got == "--tls "+want, "redis-cli: %s", got)
	got = r.Line()
	check.True(t, got == "--context prod", "an alert: %s", got)
	c = parsed(t, "--context", "prod", "--sentinel-tls=false") // Sentinels without TLS do not refuse the options of the servers
	c.use(Context{Name: "prod", URL: "rediss://", Sentinels: []string{"10.0.0.1"}, CACert: ca})
	r = check.Must(c.Resolve())(t)
	check.True(t, check.Must(r.options(r.sentinels[0]))(t).TLSConfig == nil && r.seeds[0].tls, "a Sentinel: %+v", r)
}

func TestTheHintToHideAFileIsACommand(t *testing.T) {
	for path, want := range map[string]string{
		"/home/ann/config.yaml":      "chmod 600 /home/ann/config.yaml",
		"/home/$(touch pwned)/a b":   "chmod 600 '/home/$(touch pwned)/a b'",
		"/home/it's/config.yaml":     "", // its backslash would be doubled
		"/home/\x1b[2J/config.yaml":  "",
		"/home/\x00NUL/config.yaml":  "",
		"/home/newline\n/config.yml": "",
	} {
		got := chmodHint(path)
		check.True(t, got == want, "%q: %q, want %q", path, got, want)
	}
}

// A container from scratch has no certificate authorities. The test runs itself in such a surrounding.
func TestAConnectionWithTLSHasCertificateAuthoritiesOfItsOwn(t *testing.T) {
	const none = "/nonexistent"
	if os.Getenv("SSL_CERT_FILE") == none {
		check.Must(new(tlsFlags).config())(t)
		pool := check.Must(x509.SystemCertPool())(t)
		check.True(t, !pool.Equal(x509.NewCertPool()), "there are no authorities")
		return
	}
	self := exec.Command(check.Must(os.Executable())(t), "-test.run=^"+t.Name()+"$")
	self.Env = append(os.Environ(), "SSL_CERT_FILE="+none, "SSL_CERT_DIR="+none)
	out, err := self.CombinedOutput()
	check.True(t, err == nil, "%v: %s", err, out)
}
