package servertest_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

func TestAServerForDebugTakesDebugAndFurtherArguments(t *testing.T) {
	c := servertest.DebugForTest(t, "--databases", "3")
	rdb := client(t, c.Addr())
	check.ErrorIs(t, rdb.Do(t.Context(), "DEBUG", "SET-ACTIVE-EXPIRE", "1").Err(), nil)
	check.Equal(t, rdb.ConfigGet(t.Context(), "databases").Val()["databases"], "3", "databases")
}

func TestAUserHasTheRightsThatTheServerKnows(t *testing.T) {
	c := servertest.RedisForTest(t)
	rdb := client(t, c.Addr())
	err := servertest.SetUser(t.Context(), rdb, "ann", "on", ">pw", "resetchannels", "&news:*", "%R~open:*",
		"-@all", "+ping", "+get", "+set", "+no-such-command", "+client|setname")
	check.NoError(t, err)
	ann := client(t, c.Addr()).Pipeline() // on one connection
	auth := ann.Do(t.Context(), "AUTH", "ann", "pw")
	open, other, info := ann.Get(t.Context(), "open:a"), ann.Get(t.Context(), "other"), ann.Info(t.Context())
	_, _ = ann.Exec(t.Context()) // its error is that of a command
	check.ErrorIs(t, auth.Err(), nil, "AUTH")
	check.ErrorIs(t, open.Err(), redis.Nil, "GET of a key that she may read")
	if err := other.Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("GET of another key: %v", err)
	}
	if err := info.Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("INFO: %v", err)
	}
	if users, err := rdb.Do(t.Context(), "ACL", "USERS").StringSlice(); err != nil || len(users) != 2 {
		t.Errorf("there are the users %q, %v", users, err)
	}
}

// If a server cannot revoke a permission, SetUser returns an error.
func TestARightThatCannotBeTakenAwayIsAnError(t *testing.T) {
	rdb := client(t, servertest.RedisForTest(t).Addr())
	for _, rule := range []string{"-client|no-such-subcommand", "no-such-rule"} {
		check.True(t, servertest.SetUser(t.Context(), rdb, "ann", "+@all", rule) != nil, "%q was accepted", rule)
	}
}
