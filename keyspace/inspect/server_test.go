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
