package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/keyspace"
)

// The server counts the commands, too.
func TestAMeterCountsWhatTheServerCounts(t *testing.T) {
	rdb := realServer(t)
	fill(t, rdb, 1000)
	own := connect(t, redis.Options{Addr: rdb.Options().Addr})
	do(t, rdb, "CONFIG", "RESETSTAT")
	var meter Meter
	o := justTokens()
	o.Meter = &meter
	s := scan(t, own, o)
	u := meter.Usage()
	calls := stats(t, rdb) // its own INFO is not in it
	var all int64
	for command, n := range u.Commands {
		all += n
		said := cmp.Or(calls[command], calls[command+"|idletime"]) // since Redis 7
		check.True(t, strings.HasPrefix(said, fmt.Sprintf("calls=%d,", n)), "%d × %s, and the server says %s", n, command, said)
	}
	check.True(t, all == s.Cost.Commands && u.ServerTime == s.Cost.ServerTime && u.Commands["scan"] != 0 && u.ServerTime != 0, "the meter says %v, the snapshot %+v", u, s.Cost)
}

// A known scan keeps its time until the next one is complete.
func TestASnapshotSaysWhenTheKeysWereLastScanned(t *testing.T) {
	rdb := realServer(t)
	began := time.Now()
	f := follow(rdb, justTokens())
	defer f.Close()
	node := func(s keyspace.Snapshot) keyspace.Node { return s.Nodes[0] }
	s := until(t, f, complete)
	first := node(s)
	check.True(t, !first.ScannedAt.Before(began) && !first.ScannedAt.After(time.Now()) && first.ScanTime > 0 &&
		first.ScanTime <= time.Since(began), "scanned at %v in %v; the watch began at %v", first.ScannedAt, first.ScanTime, began)
	until(t, f, func(s keyspace.Snapshot) bool { return node(s).ScannedAt.After(first.ScannedAt) })
}
