package server

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
)

func TestAServerForDebugTakesDebugAndFurtherArguments(t *testing.T) {
	c := DebugForTest(t, "--databases", "3")
	rdb := client(t, c.Addr())
	check.ErrorIs(t, rdb.Do(t.Context(), "DEBUG", "SET-ACTIVE-EXPIRE", "1").Err(), nil)
	check.Equal(t, rdb.ConfigGet(t.Context(), "databases").Val()["databases"], "3", "databases")
}

func TestAUserHasTheRightsThatTheServerKnows(t *testing.T) {
	c := ForTest(t)
	rdb := client(t, c.Addr())
	err := SetUser(t.Context(), rdb, "ann", "on", ">pw", "resetchannels", "&news:*", "%R~open:*",
		"-@all", "+ping", "+get", "+set", "+no-such-command", "+client|setname")
	check.NoError(t, err)
	ann := redis.NewClient(&redis.Options{Addr: c.Addr(), Username: "ann", Password: "pw", MaxRetries: -1})
	defer ann.Close()
	check.ErrorIs(t, ann.Get(t.Context(), "open:a").Err(), redis.Nil, "GET of a key that she may read")
	if err := ann.Get(t.Context(), "other").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("GET of another key: %v", err)
	}
	if err := ann.Info(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("INFO: %v", err)
	}
	if users, err := rdb.Do(t.Context(), "ACL", "USERS").StringSlice(); err != nil || len(users) != 2 {
		t.Errorf("there are the users %q, %v", users, err)
	}
}

// If a server cannot revoke a permission, SetUser returns an error.
func TestARightThatCannotBeTakenAwayIsAnError(t *testing.T) {
	rdb := client(t, ForTest(t).Addr())
	for _, rule := range []string{"-client|no-such-subcommand", "no-such-rule"} {
		check.True(t, SetUser(t.Context(), rdb, "ann", "+@all", rule) != nil, "%q was accepted", rule)
	}
}
