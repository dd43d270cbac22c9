package connect

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/server"
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
