package servertest

import (
	"context"
	"fmt"
	"strings"

	"locktop/internal/server"
)

// SetUser gives a user ACL rules, adapted to the version of the server. It omits
// rules for pub/sub channels if the server does not restrict channels (Redis 6.0), and
// rules for commands that the server does not have. It replaces %R~ by ~ before
// Redis 7.0. Any other rule that the server rejects is an error.
func SetUser(ctx context.Context, rdb server.Client, name string, rules ...string) error {
	if rdb.Do(ctx, aclSetUser(name, rules)...).Err() == nil { // a server that rejects one rule applies none
		return nil
	}
	var known []string
	for _, rule := range rules {
		switch err := tryRule(ctx, rdb, rule); {
		case err == nil:
			known = append(known, rule)
		case strings.HasPrefix(rule, "%R~"):
			known = append(known, strings.TrimPrefix(rule, "%R"))
		case strings.HasPrefix(rule, "&"), strings.HasSuffix(rule, "channels"):
		case unknownCommand(rule, err):
		default:
			return fmt.Errorf("set the rights of user %q: %w", name, err)
		}
	}
	if err := rdb.Do(ctx, aclSetUser(name, known)...).Err(); err != nil {
		return fmt.Errorf("set the rights of user %q: %w", name, err)
	}
	return nil
}

// unknownCommand reports whether the server rejected a rule because it does not have
// the command. Redis 6 gives the same reply for "-client|tracking" although it has
// CLIENT.
func unknownCommand(rule string, err error) bool {
	sub := strings.HasPrefix(rule, "-") && strings.Contains(rule, "|")
	return !sub && strings.Contains(err.Error(), "Unknown command")
}

// tryRule returns an error if the server rejects a rule.
func tryRule(ctx context.Context, rdb server.Client, rule string) error {
	const probe = "locktop-probe"
	err := rdb.Do(ctx, aclSetUser(probe, []string{"reset", rule})...).Err()
	if err == nil {
		err = rdb.Do(ctx, "ACL", "DELUSER", probe).Err()
	}
	return err
}

func aclSetUser(name string, rules []string) []any {
	args := []any{"ACL", "SETUSER", name}
	for _, rule := range rules {
		args = append(args, rule)
	}
	return args
}
