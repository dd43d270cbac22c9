package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
)

// loaded starts a load with numbered holders in a process of its own, and returns when a lock has been held five times.
func loaded(t *testing.T, args ...string) (*spawned, server.Client) {
	t.Helper()
	rdb := clientTo(t, servertest.RedisForTest(t).Addr())
	l := spawn(t, append([]string{"load", "-u", "redis://" + servertest.AddrOf(rdb), "--fence", "true", "--duration", "10m"}, args...)...)
	within(t, longestWait, func() bool {
		return slices.ContainsFunc(rdb.Keys(t.Context(), "*:fence").Val(), func(key string) bool {
			n, _ := rdb.Get(t.Context(), key).Int()
			return n >= 5
		})
	})
	return l, rdb
}

func TestAnInterruptedLoadReportsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	l, rdb := loaded(t, "--kind", "fair")
	l.signal(os.Interrupt)
	l.exits(exitInterrupted)
	wantAll(t, l.out.String(), "arrivals ", "acquired ", "No two clients were inside at once.")
	wantNoKeys(t, servertest.AddrOf(rdb))
}

// scenarioFile writes a scenario to a file.
func scenarioFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scenario.yaml")
	write(t, file, text)
	return file
}

// wantOnlyLocksOfTheLoad fails the test if list --all shows another key than those that
// the clients lock, which begin with a prefix and have a locktop format.
func wantOnlyLocksOfTheLoad(t *testing.T, addr, prefix string) {
	t.Helper()
	doc, _ := listedOn(t, "--all", "-u", "redis://"+addr)
	for _, l := range doc.Locks {
		if n, found := strings.CutPrefix(l.Key, prefix); !found || strings.Trim(n, "0123456789") != "" || !strings.HasPrefix(l.Format, "locktop") {
			t.Errorf("%s is listed as a lock of %s", l.Key, l.Format)
		}
	}
}

// The keys in which a load and its agents note their state are not taken for locks.
func TestOnlyTheLocksOfALoadAreListed(t *testing.T) {
	long(t, "it runs a load of every kind")
	for _, kind := range []string{"mutex", "reentrant", "rw", "fair", "semaphore", "all"} {
		addr := servertest.RedisForTest(t).Addr()
		l := spawn(t, "load", "-u", "redis://"+addr, "--kind", kind, "--prefix", "p:", "--hold", "50ms", "--clients", "10", "--duration", "30s")
		l.says("p99") // progress
		wantOnlyLocksOfTheLoad(t, addr, "p:")
		l.signal(os.Interrupt)
		l.exits(exitInterrupted)
	}
	target, control := servertest.RedisForTest(t).Addr(), servertest.RedisForTest(t).Addr()
	for range 2 {
		spawn(t, "agent", "--control", "redis://"+control)
	}
	l := spawn(t, "load", "-u", "redis://"+target, "--control", "redis://"+control, "--agents", "2", "--prefix", "p:", "--duration", "30s")
	l.says("p99") // progress
	wantOnlyLocksOfTheLoad(t, target, "p:")
	wantOnlyLocksOfTheLoad(t, control, "none")
	l.signal(os.Interrupt)
	l.exits(exitInterrupted)
}

func TestTheLocksOfAKilledLoadExpire(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mutex", "fair", "reentrant"} {
		l, rdb := loaded(t, "--kind", kind, "--hold", "50ms", "--ttl", "1s")
		l.kill()
		for _, key := range rdb.Keys(t.Context(), "*").Val() {
			// A key that is missing by now has expired. The list of the waiting processes lives for 30 s.
			left := rdb.PTTL(t.Context(), key).Val()
			check.True(t, left != -1 && left <= 30*time.Second, "%s: %s stays for %s", kind, key, left)
		}
	}
}

// The prefix has no {tag}, so the keys are on all three masters.
func TestALoadReachesAllOfACluster(t *testing.T) {
	long(t, "it runs a load on a cluster for seconds")
	rig := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	for _, addr := range rig.Addrs() {
		got, doc := reportOf(t, "--cluster", "-u", "redis://"+addr, "--prefix", "job:", "--keys", "12", "--fence", "true", "--duration", "2s", "--threshold", "outage.longest < 1m")
		if got.says(t, exitFine); !doc.Verdict.Safe || doc.Figures["acquired.count"] == 0 || doc.Figures["errors.count"] > 0 {
			t.Errorf("by %s: safe %v, %v", addr, doc.Verdict.Safe, doc.Figures)
		}
	}
	wantNoKeys(t, rig.Addrs()...)
}

// Without --cluster, a node of a cluster refuses the keys of other nodes.
func TestALoadInWhichNoClientGetsALockFails(t *testing.T) {
	long(t, "it runs loads for seconds")
	rig := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	rdb := clusterClient(t, rig)
	addr := rig.Another(int(rdb.ClusterKeySlot(t.Context(), "{away}").Val())).Addr()
	for _, kind := range []string{"mutex", "classic/blind-delete"} {
		got := locktop(t, "load", "-u", "redis://"+addr, "--kind", kind, "--prefix", "job:{away}:", "--duration", "1s", "--json")
		got.says(t, exitFailure, "no client acquired a lock", "MOVED", "--cluster")
		check.True(t, strings.Contains(got.out, `"safe":false`), "%s: not unsafe: %s", kind, got.out)
	}
}

// A violation decides the exit code, whatever else happened. Here another program deletes locks that are held.
func TestAViolationDecidesTheExitCodeAlsoAfterAnInterruptAndAFailingFile(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--duration", "10m"}, {"--duration", "0"}, {"--html", "/dev/full"}} {
		l, rdb := loaded(t, append([]string{"--keys", "1", "--clients", "5", "--hold", "20ms", "--wait", "{poll: 5ms}", "--prefix", "p:"}, args...)...)
		for range 10 {
			for rdb.Del(t.Context(), "p:1").Val() == 0 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
		}
		l.signal(os.Interrupt)
		l.exits(exitUnsafe)
	}
}

func TestARunWithoutAnEndOfItsOwnCanMissAThreshold(t *testing.T) {
	t.Parallel()
	for duration, want := range map[string]int{"0": exitThreshold, "10m": exitInterrupted} {
		l, _ := loaded(t, "--duration", duration, "--threshold", "wait.p50 < 1ns")
		l.signal(os.Interrupt)
		l.exits(want)
	}
}

// brieflyLoaded runs a load for 300 ms, and for longer while the machine is too busy for a
// single hold in that time. The answer to a prompt is in.
func brieflyLoaded(t *testing.T, in string, args ...string) outcome {
	t.Helper()
	for span := 300 * time.Millisecond; ; span *= 3 {
		got := locktopWith(t, strings.NewReader(in), slices.Concat([]string{"load", "--duration", span.String()}, args)...)
		if !strings.Contains(got.errors, "no client acquired a lock") || span > longestWait/3 {
			return got
		}
	}
}

// A load of each of our own kinds of locks sends nothing that the user of docs/load.md may not.
func TestTheUserOfALoadNeedsNoOtherRight(t *testing.T) {
	long(t, "it runs load for a while")
	addr := servertest.RedisForTest(t).Addr()
	line := regexp.MustCompile(`(?m)^ACL SETUSER load (.*)$`).FindStringSubmatch(readText(t, "../docs/load.md"))
	check.Require(t, line != nil, "docs/load.md has no ACL line")
	rules := strings.Fields(strings.NewReplacer(`"`, "", "CHANGE-ME", "c4nary").Replace(line[1]))
	aUser(t, addr, "load", rules...)
	for _, kind := range kindNames() {
		if kind == "redlock" || kind == "classic/quorum-semaphore" {
			continue
		}
		got := brieflyLoaded(t, "", "--clients", "4", "--kind", kind, "--demo=false", "-u", "redis://load:c4nary@"+addr)
		check.True(t, !strings.Contains(got.errors+got.out, "NOPERM"), "%s: %s%s", kind, got.errors, got.out)
	}
	checkNothingRefused(t, addr)
}

func TestARunThatShowsLessThanItSeemsToFails(t *testing.T) {
	long(t, "it runs load for a while")
	addr := servertest.RedisForTest(t).Addr()
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"a threshold of nothing", []string{"--threshold", "renewal_late.p99 < 1s"}, "there was not one sample"},
		{"a scene that shows nothing", []string{"freeze"}, "did not show its claim: late_work.count > 0, but it is 0"},
	} {
		got := brieflyLoaded(t, "", append([]string{"-u", "redis://" + addr}, c.args...)...)
		check.True(t, got.code == exitThreshold && strings.Contains(got.out, c.want) && strings.Contains(got.errors, c.want),
			"%s: exit code %d, want %d: %s%s", c.name, got.code, exitThreshold, got.out, got.errors)
	}
	got := locktop(t, "load", "-u", "redis://"+addr, "--duration", "10m", "--html", t.TempDir()+"/none/r.html")
	check.True(t, got.code == exitFailure && got.out == "", "a file that cannot be made: exit code %d, %s%s", got.code, got.out, got.errors)
}

func TestAServerThatWasGoneForAPartOfTheRunIsTold(t *testing.T) {
	long(t, "a server is gone for seconds of a run")
	for _, c := range []struct {
		args []string
		want int
	}{{nil, exitThreshold}, {[]string{"--threshold", "outage.longest < 1m"}, exitFine}} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			child := servertest.RedisForTest(t)
			done := make(chan outcome)
			go func() {
				done <- locktop(t, append([]string{"load", "-u", "redis://" + child.Addr(), "--duration", "6s", "--hold", "10ms"}, c.args...)...)
			}()
			rdb := server.NewClient(child.Addr(), server.ClientOptions{})
			for len(rdb.Keys(t.Context(), "load:*").Val()) == 0 {
				time.Sleep(time.Millisecond)
			}
			_ = rdb.Close()
			check.NoError(t, child.Kill())
			time.Sleep(1500 * time.Millisecond)
			check.NoError(t, child.Restart(t.Context()))
			if got := <-done; got.code != c.want || c.want == exitThreshold && !strings.Contains(got.out, "A server did not answer for") {
				t.Errorf("%q: exit code %d, want %d: %s%s", c.args, got.code, c.want, got.out, got.errors)
			}
		})
	}
}

func TestALoadFollowsTheMasterThatTheSentinelsName(t *testing.T) {
	long(t, "Sentinels replace a master under load")
	rig := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{})
	file := scenarioFile(t, "name: follow\nclients: 5\nhold: 20ms\nthink: 20ms\nlock: {ttl: 2s}\nfaults: [{at: 2s, fault: failover}]\nduration: 9s\n")
	_, doc := reportOf(t, append([]string{file}, sentinelFlags(rig)...)...)
	doc.wantFailover(t)
}

// Without a redis-server, the servers of a demo are inside locktop, where no process can be stopped. Their clients get
// no replies instead, which has the same effect on them.
func TestAServerInsideLocktopStandsStill(t *testing.T) {
	testtier.Long(t, "a frozen load runs into its limits")
	t.Setenv("PATH", "")
	file := scenarioFile(t, "clients: 5\nkeys: 1\nhold: 5ms\nfaults: [{at: 500ms, fault: stop, for: 1500ms}]\nduration: 3s\n")
	o, report := reportOf(t, file, "--demo")
	o.says(t, exitFine, "inside locktop")
	most := 1000 * report.Figures["wait.max"]
	check.True(t, most >= 1400 && most <= 2500 && report.Faults[0].Struck == 1, "the longest wait is %g ms, %+v", most, report.Faults)
	check.True(t, report.Seconds[2].Acquired != 0, "nothing was acquired afterwards")
}

// loadReport is what the tests read of a report.
type loadReport struct {
	Faults []struct {
		Struck int `json:"struck_count"`
	}
	Figures loadgen.Figures
	Seconds []struct {
		Acquired int64 `json:"acquired_count"`
	}
	Verdict struct {
		Safe bool
		Text string
	}
}

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

func TestALoadOnAClusterFollowsAFailover(t *testing.T) {
	long(t, "a cluster replaces a master under load")
	rig := servertest.ClusterForTest(t, servertest.ClusterOptions{Replicas: 1})
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
	master := servertest.RedisForTest(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	sentinel := check.Must(miniserver.NewServer("127.0.0.1:0"))(t)
	defer sentinel.Close()
	const elsewhere = "192.0.2.7" // an address reserved for documentation
	_ = sentinel.Register("SENTINEL", func(c *miniserver.Peer, _ string, args []string) {
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

// The Load page runs clients on a server of the user: with the flag at once, otherwise after a question. They leave
// nothing behind, and change nothing else.
func TestTheScreenRunsALoadOnTheServerItShows(t *testing.T) {
	long(t, "it runs the program in a terminal, and a load")
	child := servertest.RedisForTest(t)
	rdb := clientTo(t, child.Addr())
	check.NoError(t, rdb.Set(t.Context(), "lock:mine", "somebody", 0).Err())
	for _, flags := range [][]string{{"--load"}, nil} {
		term := openTerminal(t, 120, 40, append([]string{"-u", "redis://" + child.Addr()}, flags...)...)
		if flags == nil {
			term.want("lock:mine").press("3").want("s runs clients on it, after a question")
			keys := rdb.Keys(t.Context(), "load:*").Val()
			check.True(t, len(keys) == 0, "before the question is answered there are %q", keys)
			term.press("s").want("Run clients on this server?", "do not run").press("y").want("own server", "connections", "rate")
		} else {
			term.want("m shows ", "READ-ONLY + LOAD")
			term.press("3").want("nothing has run yet").press("s")
		}
		term.want("● running", "20 clients", "0 overlaps: mutual exclusion held")
		term.press("f").want("Inject a fault").press("c").want("dies without releasing load:", "1 dead")
		term.press("1").want("load c", "lock:mine")
		term.quit()
		keys := rdb.Keys(context.Background(), "*").Val()
		check.True(t, len(keys) == 1 && keys[0] == "lock:mine", "%q: the server is left with %q", flags, keys)
	}
}
