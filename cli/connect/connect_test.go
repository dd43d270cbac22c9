package connect

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
)

func TestTheConnectionIsNamedWhereTheACLAllowsIt(t *testing.T) {
	c := server.ForTest(t)
	connected := func(t *testing.T, args ...string) *redis.Client {
		t.Helper()
		tgt := check.Must(parsed(t, append([]string{"-u", "redis://" + c.Addr()}, args...)...).Open(t.Context(), Prompt{}))(t)
		t.Cleanup(tgt.Close)
		return tgt.Client
	}
	rdb := connected(t)
	name := rdb.ClientGetName(t.Context()).Val()
	check.True(t, name == "locktop", "the connection is named %q", name)
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
		other := c.Elsewhere(url)
		check.ErrorIs(t, other.checkTopology(), nil)
		e, err := other.resolve()
		check.True(t, err == nil && e == want, "%s: %+v, %v", url, e, err)
		check.True(t, other.security.cacert == "ca.pem" && other.timeout == 7*time.Second, "%s: %+v", url, other)
	}
}

func TestAChildProcessDoesNotGoThroughSSH(t *testing.T) {
	_, _, err := parsed(t, "--ssh", "web-1").Child(t.Context(), "127.0.0.1:6379", 0)
	check.True(t, err != nil && strings.Contains(err.Error(), "does not go through --ssh"), "%v", err)
}

// A connection goes to permitted addresses only, also if a cluster announces others.
func TestOnlyPermittedAddressesAreDialled(t *testing.T) {
	t.Parallel()
	forbidden := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer forbidden.Close()
	go func() {
		for {
			conn, err := forbidden.Accept()
			if err != nil {
				return
			}
			t.Errorf("there is a connection from %s", conn.RemoteAddr())
			_ = conn.Close()
		}
	}()
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
		if tgt, err := flags.Open(t.Context(), Prompt{}); err == nil {
			tgt.Close()
			t.Error("the target is open")
		} else if err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	announced = [2]net.Addr{node.Addr(), node.Addr()}
	tgt := check.Must(parsed(t, "-u", "redis://"+node.Addr().String(), "--cluster").Only(permit).Open(t.Context(), Prompt{}))(t)
	defer tgt.Close()
	rdb, _, err := tgt.Writer()
	check.NoError(t, err)
	announced = [2]net.Addr{forbidden.Addr(), forbidden.Addr()} // it changes during the run
	rdb.(*redis.ClusterClient).Options().DialerRetries = 1      // the default is five dials in 0.4 s
	rdb.(*redis.ClusterClient).ReloadState(t.Context())
	err = rdb.Get(t.Context(), "k").Err()
	check.True(t, err != nil && strings.Contains(err.Error(), want), "a later node: %v, want %s", err, want)
}
