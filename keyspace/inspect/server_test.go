package inspect

import (
	"testing"

	"locktop/keyspace"
)

// A Valkey server also reports the Redis version that it is compatible with.
func TestAServerIsNamedByItsProduct(t *testing.T) {
	for _, c := range []struct {
		info, product, version, mode, software string
	}{
		{"# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n", "redis", "6.0.16", "standalone", "Redis 6.0.16"},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nvalkey_release_stage:ga\r\nserver_mode:cluster\r\n", "valkey", "8.1.1", "cluster", "Valkey 8.1.1"},
		{"redis_version:7.2.4\r\nserver_name:redis\r\nvalkey_version:8.1.1\r\nredis_mode:standalone\r\n", "redis", "7.2.4", "standalone", "Redis 7.2.4"},
		{"# Replication\r\nrole:master\r\n", "", "", "", ""},
	} {
		var s keyspace.Server
		for range 2 { // twice, as in every scan
			describeServer(&s, c.info)
			describeServer(&s, "# Replication\r\nrole:master\r\n")
		}
		if s.Product != c.product || s.Version != c.version || s.Mode != c.mode || s.Software() != c.software {
			t.Errorf("%q is %q, %q, %q: %q", c.info, s.Product, s.Version, s.Mode, s.Software())
		}
	}
	if got := (keyspace.Server{Version: "7.0.15"}).Software(); got != "Redis 7.0.15" {
		t.Errorf("a server of an old recording is %q", got)
	}
}

// serverError is an error as a server sends it.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// The texts are those of Redis 6.0.16, 7.0.15, 8.0.2 and Valkey 8.1.1.
func TestARefusedCommandIsToldFromAHiddenKeyOnEveryServer(t *testing.T) {
	for _, c := range []struct {
		text              string
		forbidden, hidden bool
	}{
		{"NOPERM this user has no permissions to access one of the keys used as arguments", false, true}, // 6.0, 7.0
		{"NOPERM No permissions to access a key", false, true},                                           // 8.0, Valkey
		{"NOPERM this user has no permissions to run the 'type' command or its subcommand", true, false}, // 6.0
		{"NOPERM this user has no permissions to run the 'client|list' command", true, false},            // 7.0
		{"NOPERM User ann has no permissions to run the 'type' command", true, false},                    // 8.0, Valkey
		{"ERR unknown command `TIME`, with args beginning with: ", true, false},                          // 6.0
		{"ERR unknown command 'TIME', with args beginning with: ", true, false},                          // 7.0 and later
		{"NOPERM No permissions to access a channel", true, false},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", false, false},
		{"LOADING Redis is loading the dataset in memory", false, false},
		{"ERR No permissions to access a key", false, false},
	} {
		err := serverError(c.text)
		if isCommandDenied(err) != c.forbidden || isKeyDenied(err) != c.hidden || isDenied(err) != (c.forbidden || c.hidden) {
			t.Errorf("%q: forbidden %v, hidden %v, refused %v", c.text, isCommandDenied(err), isKeyDenied(err), isDenied(err))
		}
	}
	if isCommandDenied(nil) || isKeyDenied(nil) {
		t.Error("no error is a refusal")
	}
}
