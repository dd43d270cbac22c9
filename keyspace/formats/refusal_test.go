package formats_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/keyspace/release"
)

// refused force-releases a lock of a server that answers with an error.
func refused(t *testing.T, holder keyspace.Holder, says error) (keyspace.AuditRecord, error) {
	rdb := server.NewClient("a:1", server.ClientOptions{})
	defer rdb.Close()
	rdb.AddHook(servertest.Commands(func(context.Context, redis.Cmder, redis.ProcessHook) error { return says })) // no server gets one
	nodes := map[string]inspect.Client{"a:1": rdb}
	seen := keyspace.Lock{Key: "lock:a", Node: "a:1", Format: "set-nx", Kind: keyspace.Mutex, Holders: []keyspace.Holder{holder}}
	return release.NewExecutor(always(nodes), everyFormat, &memoryLog{}).Act(t.Context(), keyspace.ForceRelease, seen, 0)
}

// replyError is an error as a server sends it.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// The texts are those of the four servers, for a script that runs the failing command.
func TestAnErrorInAScriptIsTheSameOnEveryServer(t *testing.T) {
	const sha = "6032e38da737c7d1cb20194c33c2c71a7efd3edf"
	const before, after = "ERR Error running script (call to f_" + sha + "): @user_script:9: ", " script: " + sha + ", on @user_script:9."
	for _, c := range []struct {
		text, want string
		kind       error
	}{
		{before + "@user_script: 9: -READONLY You can't write against a read only replica.", "READONLY You can't write against a read only replica.", release.ErrReadOnly},
		{"READONLY You can't write against a read only replica." + after, "READONLY You can't write against a read only replica.", release.ErrReadOnly},
		{"READONLY You can't write against a read only replica.", "READONLY You can't write against a read only replica.", release.ErrReadOnly},
		{before + "@user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.", "OOM command not allowed when used memory > 'maxmemory'.", nil},
		{"OOM command not allowed when used memory > 'maxmemory'." + after, "OOM command not allowed when used memory > 'maxmemory'.", nil},
		{before + "WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE Operation against a key holding the wrong kind of value", nil},
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + after, "WRONGTYPE Operation against a key holding the wrong kind of value", nil},
		{before + "@user_script: 9: The user executing the script can't run this command or subcommand", "NOPERM The user executing the script can't run this command or subcommand", release.ErrNoPermission},
		{before + "@user_script: 9: The user executing the script can't access at least one of the keys mentioned in the command arguments",
			"NOPERM The user executing the script can't access at least one of the keys mentioned in the command arguments", release.ErrNoPermission},
		{"ERR The user executing the script can't run this command or subcommand" + after, "NOPERM The user executing the script can't run this command or subcommand", release.ErrNoPermission},
		{"ERR ACL failure in script: User u has no permissions to run the 'set' command" + after, "NOPERM User u has no permissions to run the 'set' command", release.ErrNoPermission},
		{"ERR ACL failure in script: No permissions to access a key" + after, "NOPERM No permissions to access a key", release.ErrNoPermission},
		{"NOPERM No permissions to access a key", "NOPERM No permissions to access a key", release.ErrNoPermission},
		{"ERR something else", "ERR something else", nil},
	} {
		_, err := refused(t, keyspace.Holder{ID: tokenSeen}, replyError(c.text))
		check.True(t, err != nil && strings.HasSuffix(err.Error(), "at a:1: "+c.want), "%q\nbecomes %q,\nwant    %q", c.text, err, c.want)
		for _, kind := range []error{release.ErrReadOnly, release.ErrNoPermission} {
			check.True(t, errors.Is(err, kind) == (kind == c.kind), "%q is %v: %v", c.text, kind, errors.Is(err, kind))
		}
	}
	lost := errors.New("broken pipe")
	_, err := refused(t, keyspace.Holder{ID: tokenSeen}, lost)
	check.ErrorIs(t, err, lost, "an error that is not the server's")
}

// The label of a holder may be its whole token, or a field that is one.
func TestALabelThatMayBeTheTokenIsNoPartOfARecord(t *testing.T) {
	const digest = " sha256:a533dd40f601b94a"
	for label, want := range map[string]string{"": "?", "web-1:4711": "?", "3f2b8c6a-1d4e-4a7b-9c5d-8e0f2a4b6c8d": "?", "web-1": "web-1"} {
		r, _ := refused(t, keyspace.Holder{ID: "web-1:4711", Label: label}, errors.New("broken pipe"))
		check.Equal(t, strings.Join(r.Holders, " "), want+digest, "with the label "+label)
	}
}

// ACL DRYRUN, which Redis has since 7.0, says so before an action. A user that may not ask may act, as far as is known.
func TestAnExecutorKnowsThatItsUserMayNotAct(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	admin := connect(t, addr)
	for rights, want := range map[string]bool{"+acl": true, "+acl +eval": false, "+get": false} {
		check.NoError(t, servertest.SetUser(t.Context(), admin, "tester", append([]string{"on", ">pw", "-@all", "+hello"}, strings.Fields(rights)...)...))
		rdb := server.NewClient(addr, server.ClientOptions{Username: "tester", Password: "pw"})
		e := release.NewExecutor(always(map[string]inspect.Client{"a:1": rdb}), everyFormat, &memoryLog{})
		asks := admin.Do(t.Context(), "acl", "dryrun", "default", "get", "a").Err() == nil
		check.Equal(t, e.Refused(t.Context()), map[bool]string{true: "the user tester may not run EVAL on a:1"}[want && asks], rights)
		check.NoError(t, rdb.Close())
	}
}
