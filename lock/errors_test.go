package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
)

// The original error replies of Redis 6.0.16, 7.0.15, 8.0.2 and Valkey 8.1.1.
func TestErrorRepliesOfEveryServerHaveTheirSentinel(t *testing.T) {
	const (
		before7 = "ERR Error running script (call to f_620cd258c2c9c88c9d10db67812ccf663d96bdc6): @user_script:1: "
		since7  = " script: 620cd258c2c9c88c9d10db67812ccf663d96bdc6, on @user_script:1."
	)
	for _, c := range []struct {
		reply string
		want  error
	}{
		{"WRONGTYPE Operation against a key holding the wrong kind of value", ErrWrongType},
		{before7 + "WRONGTYPE Operation against a key holding the wrong kind of value", ErrWrongType},
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + since7, ErrWrongType},
		{"READONLY You can't write against a read only replica.", errReadOnly},
		{before7 + "@user_script: 1: -READONLY You can't write against a read only replica.", errReadOnly},
		{"READONLY You can't write against a read only replica." + since7, errReadOnly},
		{"OOM command not allowed when used memory > 'maxmemory'.", ErrUnavailable},
		{before7 + "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.", ErrUnavailable},
		{"OOM command not allowed when used memory > 'maxmemory'." + since7, ErrUnavailable},
		{"MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.", ErrUnavailable},
		{before7 + "@user_script: 1: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.", ErrUnavailable},
		{"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk." + since7, ErrUnavailable},
		{"NOREPLICAS Not enough good replicas to write.", ErrUnavailable},
		{"NOREPLICAS Not enough good replicas to write." + since7, ErrUnavailable},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ErrUnavailable},
		{"NOPERM this user has no permissions to run the 'set' command or its subcommand", ErrNoPermission},
		{"NOPERM User u has no permissions to run the 'set' command", ErrNoPermission},
		{"NOPERM this user has no permissions to access one of the keys used as arguments", ErrNoPermission},
		{"NOPERM No permissions to access a key", ErrNoPermission},
		{before7 + "@user_script: 1: The user executing the script can't run this command or subcommand", ErrNoPermission},
		{before7 + "@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments", ErrNoPermission},
		{"ERR The user executing the script can't run this command or subcommand" + since7, ErrNoPermission},
		{"ERR The user executing the script can't publish to the channel mentioned in the command" + since7, ErrNoPermission},
		{"ERR ACL failure in script: User u has no permissions to run the 'set' command" + since7, ErrNoPermission},
		{"ERR ACL failure in script: No permissions to access a key" + since7, ErrNoPermission},
		{"ERR ACL failure in script: No permissions to access a channel" + since7, ErrNoPermission},

		{"ERR syntax error", nil},
		{before7 + "@user_script: 1: ERR value is not an integer or out of range", nil},
		{"ERR Error running script: OOM", nil}, // no server sends this
	} {
		err := describe("acquire", "orders", refusal(c.reply))
		check.Equal(t, sentinelOf(err), c.want, "%s", c.reply)
		told := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(c.reply, before7), "@user_script: 1: "), "-")
		code, _, _ := strings.Cut(told, " ")
		check.True(t, (c.want == nil || errors.Is(err, c.want) && redis.HasErrorPrefix(err, strings.TrimPrefix(code, "ERR"))) && strings.Contains(err.Error(), told),
			"got %v; it must match %v and have the words %q", err, c.want, told)
	}
}

// A caller whose context ends while it waits for a server learns both.
func TestAReplyHidesNotTheEndOfTheContext(t *testing.T) {
	err := describe("acquire", "orders", fmt.Errorf("%w: %w", context.DeadlineExceeded, refusal("TRYAGAIN Multiple keys request during rehashing of slot")))
	check.True(t, errors.Is(err, context.DeadlineExceeded) && errors.Is(err, ErrUnavailable) && redis.HasErrorPrefix(err, "TRYAGAIN"), "got %v", err)
}
