package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	rigs "locktop/internal/server"
	"locktop/internal/testtier"
)

// loadReport is the part of a report that these tests read.
type loadReport struct {
	Counts  struct{ Acquired, Errors int64 }
	Faults  []struct{ Struck int }
	Seconds []struct{ Acquired int }
	Verdict struct {
		Safe bool
		Text string
	}
}

// reportOf runs a load and reads its report.
func reportOf(t *testing.T, args ...string) (outcome, loadReport) {
	t.Helper()
	got := locktop(t, append([]string{"load", "--json"}, args...)...)
	doc := decoded[loadReport](t, got.out)
	return got, doc
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
			err = errors.Join(err, moveSlot(ctx, rig, int(rdb.ClusterKeySlot(ctx, key).Val())))
		}
		moved <- err
	}()
	got, doc := reportOf(t, "--cluster", "-u", "redis://"+rig.Addrs()[0], "--prefix", "job:",
		"--clients", "30", "--keys", fmt.Sprint(keys), "--hold", "20ms", "--think", "20ms", "--duration", "5s")
	cancel()
	err := <-moved
	if moves < keys/3 {
		t.Fatalf("%d slots moved only: %v", moves, err)
	}
	if got.code != exitFine || !doc.Verdict.Safe || doc.Counts.Acquired < 100 || doc.Counts.Errors > 0 {
		t.Errorf("%d moves, exit code %d, %d acquired, %d errors: %s%s", moves, got.code, doc.Counts.Acquired, doc.Counts.Errors, got.out, got.errors)
	}
	if left := rdb.Keys(t.Context(), "job:*").Val(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// moveSlot moves a slot with its keys to the next master.
func moveSlot(ctx context.Context, rig *rigs.Cluster, slot int) error {
	owner, err := rig.Owner(ctx, slot)
	if err != nil {
		return err
	}
	masters := rig.Nodes()
	to := masters[0]
	for i, node := range masters {
		if node == owner {
			to = masters[(i+1)%len(masters)]
		}
	}
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

// A load on a cluster continues after a fault of the scenario has replaced a
// master by a replica.
func TestALoadOnAClusterFollowsAFailover(t *testing.T) {
	testtier.Long(t, "a cluster replaces a master under load")
	t.Parallel()
	rig := rigs.ClusterForTest(t, rigs.ClusterOptions{Replicas: 1})
	file := t.TempDir() + "/failover.yaml"
	text := "name: follow\nclients: 10\nkeys: 30\nhold: 20ms\nthink: 20ms\nlock: {ttl: 2s}\nfaults: [{at: 2s, fault: failover}]\nduration: 9s\n"
	must(t, os.WriteFile(file, []byte(text), 0o600))
	got, doc := reportOf(t, file, "--cluster", "-u", "redis://"+rig.Addrs()[0], "--prefix", "job:")
	after := 0
	for _, s := range doc.Seconds[max(0, len(doc.Seconds)-4):] {
		after += s.Acquired
	}
	if len(doc.Faults) != 1 || doc.Faults[0].Struck != 1 || after < 50 {
		t.Errorf("faults %v, %d acquired at the end; exit code %d: %s%s", doc.Faults, after, got.code, doc.Verdict.Text, got.errors)
	}
	replaced := 0
	for _, addr := range rig.Addrs()[:3] { // the masters at the start
		rdb := clientTo(t, addr)
		if role := rdb.Do(t.Context(), "role").Val().([]any)[0]; role == "slave" {
			replaced++
		}
	}
	if replaced != 1 {
		t.Errorf("%d of the masters were replaced, want 1", replaced)
	}
}

// Sentinels may announce any address. A load refuses addresses that are not on
// this machine: here that of a replica that could become the master.
func TestALoadRefusesAnAddressElsewhereThatASentinelAnnounces(t *testing.T) {
	master := rigs.ForTest(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	sentinel, err := server.NewServer("127.0.0.1:0")
	must(t, err)
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
	if got.code != exitUsage || !strings.Contains(got.errors, elsewhere+":6379") || !strings.Contains(got.errors, "is on another machine") {
		t.Errorf("exit code %d, want %d, and a word about %s: %s%s", got.code, exitUsage, elsewhere, got.out, got.errors)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v: the load may have run", took)
	}
	rdb := clientTo(t, master.Addr())
	if stats := rdb.Info(t.Context(), "commandstats").Val(); strings.Contains(stats, "cmdstat_set:") || strings.Contains(stats, "cmdstat_eval") {
		t.Errorf("the master was asked for locks: %s", stats)
	}
}
