package connect

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
)

func TestTheConnectionIsNamedWhereTheACLAllowsIt(t *testing.T) {
	c := server.ForTest(t)
	connected := func(t *testing.T, args ...string) *redis.Client {
		t.Helper()
		tgt, err := parsed(t, append([]string{"-u", "redis://" + c.Addr()}, args...)...).Open(t.Context(), Prompt{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tgt.Close)
		return tgt.Client
	}
	rdb := connected(t)
	if name := rdb.ClientGetName(t.Context()).Val(); name != "locktop" {
		t.Errorf("the connection is named %q", name)
	}
	if err := rdb.Do(t.Context(), "ACL", "SETUSER", "shy", "on", ">pw", "~*", "+@all", "-client", "-ping").Err(); err != nil {
		t.Fatal(err)
	}
	connected(t, "--user", "shy", "-a", "pw")
}

// The password of one server never goes to another, also not by the environment, and --tls
// of one server does not hold for another.
func TestElsewhereHasNoPasswordOfTheFlags(t *testing.T) {
	t.Setenv("REDISCLI_AUTH", "canary")
	var c Flags
	set := c.FlagSet()
	if err := set.Parse([]string{"-a", "canary", "--user", "app", "--tls", "--cacert", "ca.pem", "-n", "3", "--sentinel", "127.0.0.1:26379", "--master", "m", "--timeout", "7s"}); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]endpoint{
		"redis://10.0.0.1:6380":            {network: "tcp", addr: "10.0.0.1:6380"},
		"rediss://app:own@10.0.0.1:6380/2": {network: "tcp", addr: "10.0.0.1:6380", user: "app", pass: "own", db: 2, tls: true},
	} {
		other := c.Elsewhere(url)
		if err := other.checkTopology(); err != nil {
			t.Error(err)
		}
		if e, err := other.resolve(); err != nil || e != want {
			t.Errorf("%s: %+v, %v", url, e, err)
		}
		if other.security.cacert != "ca.pem" || other.timeout != 7*time.Second {
			t.Errorf("%s: %+v", url, other)
		}
	}
}

func TestAChildProcessDoesNotGoThroughSSH(t *testing.T) {
	var c Flags
	if err := c.FlagSet().Parse([]string{"--ssh", "web-1"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Child(t.Context(), "127.0.0.1:6379", 0); err == nil || !strings.Contains(err.Error(), "does not go through --ssh") {
		t.Errorf("%v", err)
	}
}
