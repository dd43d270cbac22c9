package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"locktop/internal/check"
	rigs "locktop/internal/server"
	"locktop/internal/testtier"
)

// reportOf runs a load and reads its report.
func reportOf(t *testing.T, args ...string) (outcome, loadReport) {
	t.Helper()
	got := locktop(t, append([]string{"load", "--json"}, args...)...)
	return got, decoded[loadReport](t, got.out)
}

// wantFailover fails the test unless the only fault struck, and locks were acquired after it.
func (r loadReport) wantFailover(t *testing.T) {
	t.Helper()
	after := int64(0)
	for _, s := range r.Seconds[max(0, len(r.Seconds)-4):] {
		after += s.Acquired
	}
	check.True(t, len(r.Faults) == 1 && r.Faults[0].Struck == 1 && after >= 50,
		"faults %v, %d acquired at the end: %s", r.Faults, after, r.Verdict.Text)
}

// The slot of each key moves to another master during the load, key by key.
// Locks without companions need no command on two keys, so no attempt may fail.
func TestALoadOnAClusterStandsResharding(t *testing.T) {
	testtier.Long(t, "slots move for seconds under load")
	rig := rigs.ClusterForTest(t, rigs.ClusterOptions{})
	rdb := clusterClient(t, rig)
	const keys = 30
	ctx, cancel := context.WithCancel(t.Context())
	moves, moved := 0, make(chan error, 1)
	go func() {
		var err error
		for ; err == nil && moves < keys; moves++ {
			key := fmt.Sprint("job:", moves+1)
			for err == nil && rdb.Exists(ctx, key).Val() == 0 { // the lock is held while its slot moves
				time.Sleep(time.Millisecond)
				err = ctx.Err()
			}
			if err == nil {
				slot := int(rdb.ClusterKeySlot(ctx, key).Val())
				err = moveSlot(ctx, rig, slot, another(rig, slot))
			}
		}
		moved <- err
	}()
	got, doc := reportOf(t, "--cluster", "-u", "redis://"+rig.Addrs()[0], "--prefix", "job:",
		"--clients", "30", "--keys", fmt.Sprint(keys), "--hold", "20ms", "--think", "20ms", "--duration", "5s")
	cancel()
	err := <-moved
	check.Require(t, moves >= keys/3, "%d slots moved only: %v", moves, err)
	if got.says(t, exitFine); !doc.Verdict.Safe || doc.Counts["acquired"] < 100 || doc.Counts["errors"] > 0 {
		t.Errorf("%d moves, %v: %s", moves, doc.Counts, got.out)
	}
	left := rdb.Keys(t.Context(), "job:*").Val()
	check.True(t, len(left) == 0, "left behind: %q", left)
}

// another returns the first master that does not have a slot.
func another(rig *rigs.Cluster, slot int) *rigs.Child {
	to := rig.Nodes()[0]
	if owner, err := rig.Owner(context.Background(), slot); err == nil && owner == to {
		to = rig.Nodes()[1]
	}
	return to
}

// moveSlot moves a slot to a master, key by key.
func moveSlot(ctx context.Context, rig *rigs.Cluster, slot int, to *rigs.Child) error {
	move, err := rig.StartMigration(ctx, slot, to)
	if err != nil {
		return err
	}
	defer move.Close()
	for {
		n, err := move.MoveKeys(ctx, 1)
		if err != nil {
			return err
		}
		if n == 0 {
			return move.Finish(ctx)
		}
	}
}

func TestALoadOnAClusterFollowsAFailover(t *testing.T) {
	testtier.Long(t, "a cluster replaces a master under load")
	t.Parallel()
	rig := rigs.ClusterForTest(t, rigs.ClusterOptions{Replicas: 1})
	file := scenarioFile(t, "name: follow\nclients: 10\nkeys: 30\nhold: 20ms\nthink: 20ms\nlock: {ttl: 2s}\nfaults: [{at: 2s, fault: failover}]\nduration: 9s\n")
	_, doc := reportOf(t, file, "--cluster", "-u", "redis://"+rig.Addrs()[0], "--prefix", "job:")
	doc.wantFailover(t)
	replaced := 0
	for _, addr := range rig.Addrs()[:3] { // the masters at the start
		rdb := clientTo(t, addr)
		if role := rdb.Do(t.Context(), "role").Val().([]any)[0]; role == "slave" {
			replaced++
		}
	}
	check.True(t, replaced == 1, "%d of the masters were replaced, want 1", replaced)
}

// Sentinels may announce any address. A load refuses addresses that are not on
// this machine: here that of a replica that could become the master.
func TestALoadRefusesAnAddressElsewhereThatASentinelAnnounces(t *testing.T) {
	master := rigs.ForTest(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	sentinel := check.Must(server.NewServer("127.0.0.1:0"))(t)
	defer sentinel.Close()
	const elsewhere = "192.0.2.7" // an address reserved for documentation
	_ = sentinel.Register("SENTINEL", func(c *server.Peer, _ string, args []string) {
		switch strings.ToLower(args[0]) {
		case "get-master-addr-by-name":
			c.WriteStrings([]string{host, port})
		case "replicas", "slaves":
			c.WriteLen(1)
			c.WriteStrings([]string{"name", elsewhere + ":6379", "ip", elsewhere, "port", "6379", "flags", "slave"})
		default:
			c.WriteLen(0)
		}
	})
	began := time.Now()
	got := locktop(t, "load", "--sentinel", sentinel.Addr().String(), "--master", "any", "--duration", "1m")
	got.fails(t, exitUsage, elsewhere+":6379", "is on another machine")
	took := time.Since(began)
	check.True(t, took <= 30*time.Second, "it took %v: the load may have run", took)
	rdb := clientTo(t, master.Addr())
	if stats := rdb.Info(t.Context(), "commandstats").Val(); strings.Contains(stats, "cmdstat_set:") || strings.Contains(stats, "cmdstat_eval") {
		t.Errorf("the master was asked for locks: %s", stats)
	}
}
