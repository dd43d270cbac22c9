//go:build unix

package loadgen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen/external"
	"locktop/lock"
)

// asClient is the environment variable that makes this test binary a client process with
// locks of a kind, or with a broken lock.
const asClient = "LOCKTOP_TEST_CLIENT"

func init() {
	kind := Kind(os.Getenv(asClient))
	if kind == "" {
		return
	}
	open, renew := open, Renew{}
	switch kind {
	case "extends": // but does not renew
		kind, renew = Mutex, Renew{Off: true}
	case "own-keys":
		kind, open = Mutex, func(o sessionConfig) (session, error) {
			inner, err := openNoNX(o)
			return ownKeys{inner}, err
		}
	case "exits":
		time.AfterFunc(300*time.Millisecond, func() {
			fmt.Fprintln(os.Stderr, "out of luck")
			os.Exit(7)
		})
		kind = Mutex
	case "hides-loss":
		kind, open = Mutex, openWrapped(hideLoss)
	case "garbage":
		fmt.Println("Hello!")
	}
	if err := serveClient(context.Background(), Lock{Kind: kind, Renew: renew}, open, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ownKeys is a session of a library that has names of its own for its keys.
type ownKeys struct{ session }

func (s ownKeys) as(id clientIdentity) session { return ownKeys{s.session.as(id)} }

func (s ownKeys) lock(ctx context.Context, keys []string, shared bool) (*lease, error) {
	return s.session.lock(ctx, []string{"mutex:" + keys[0]}, shared)
}

// hideLoss makes a lease one of a library whose release does not say that the lock was lost.
func hideLoss(l *lease) {
	unlock := l.unlock
	l.lives, l.unlock = endless{l.lives}, func(ctx context.Context) error {
		_ = unlock(ctx)
		return nil
	}
}

// process returns a lock of client processes, which are this test binary.
func process(kind Kind, ttl time.Duration) Lock {
	return Lock{Exec: fmt.Sprintf("%s=%s exec '%s'", asClient, kind, os.Args[0]), TTL: ttl}
}

// checkNoProcess fails the test if a client process is left.
func checkNoProcess(t *testing.T) {
	t.Helper()
	out := check.Must(exec.Command("ps", "-A", "-o", "ppid=,stat=,args=").Output())(t)
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); fields[0] == fmt.Sprint(os.Getpid()) && strings.Contains(line, os.Args[0]) && fields[1][0] != 'Z' {
			t.Errorf("a process is left: %s", line)
		}
	}
}

// raced runs a scenario of client processes on a real server to its end.
func raced(t *testing.T, s Scenario) Metrics {
	t.Helper()
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	m := summed(t, ended(New(Servers{Redis: rdb}, s))(t))
	checkNoKeys(t, rdb)
	checkNoProcess(t)
	return m
}

func TestAClientThatHidesALossHasNotRemovedTheLockOfAnother(t *testing.T) {
	testtier.Long(t, "it runs loads of client processes for seconds")
	m := raced(t, Scenario{
		Lock: process("hides-loss", 300*time.Millisecond), Clients: 3, Keys: Keys{N: 1}, Duration: 3 * time.Second, Seed: 1,
		Hold: Const(50 * time.Millisecond), Think: Const(time.Millisecond),
		Faults: []Fault{
			{At: 300 * time.Millisecond, Kind: Freeze, For: 430 * time.Millisecond},
			{At: 1200 * time.Millisecond, Kind: Freeze, For: 430 * time.Millisecond},
			{At: 2100 * time.Millisecond, Kind: Freeze, For: 430 * time.Millisecond},
		},
	})
	check.True(t, m.Violations.ForeignUnlock.Count == 0 && m.Violations.Overlap.Count == 0,
		"%d foreign unlocks, %d overlaps", m.Violations.ForeignUnlock.Count, m.Violations.Overlap.Count)
	for _, f := range m.Faults {
		check.Equal(t, f.Struck, 1, "%v", f)
	}
}

func TestALateReleaseThatRemovedTheLockOfAnotherIsFoundWithoutAnOverlap(t *testing.T) {
	testtier.Long(t, "it runs a load of client processes for seconds")
	m := raced(t, Scenario{ // the second client comes after 1 s, and nobody comes while it is inside
		Lock: process("classic/blind-delete", 800*time.Millisecond), Clients: 2, Keys: Keys{N: 1}, Duration: 1900 * time.Millisecond,
		Hold: Const(600 * time.Millisecond), Think: Const(2 * time.Second),
		Faults: []Fault{{At: 100 * time.Millisecond, Kind: Freeze, Client: 1, For: 1200 * time.Millisecond}},
	})
	check.True(t, m.Violations.ForeignUnlock.Count == 1 && m.Violations.Overlap.Count == 0 && m.Acquired == 2 && m.Lost == 1,
		"%d foreign unlocks, %d overlaps, %d acquired, %d lost", m.Violations.ForeignUnlock.Count, m.Violations.Overlap.Count, m.Acquired, m.Lost)
	check.False(t, m.Verdict(Scenario{Lock: process("classic/blind-delete", 0)}.WithDefaults()).Safe, "it is called safe")
}

// scripted returns the lease of a client process that is a script. The process ends with the test.
func scripted(t *testing.T, l Lock, depth int) *lease {
	l.Kind = Exec
	s := &execSession{
		config: sessionConfig{scenario: Scenario{Lock: l, Depth: depth}, network: newNetwork(new(atomic.Int64)), observe: func(lock.Event) {}},
		id:     clientIdentity{owner: "client-1"},
	}
	t.Cleanup(func() { check.ErrorIs(t, s.close(), nil) })
	held := check.Must(s.lock(t.Context(), []string{"k"}, false))(t)
	check.NoError(t, held.enter(t.Context(), &s.config.scenario))
	return held
}

// A client that reports a loss has lost the lock, whatever its release says, and the hold is
// not a released one. The client is a script.
func TestAClientProcessThatReportsALossHasNotKeptTheLock(t *testing.T) {
	for event, kept := range map[string]bool{"": true, `{"event":"lost","token":"t"}`: false} {
		script := `read x; echo '{"ok":true,"name":"a script","renews":true,"tells":true}'
			read x; echo '{"id":1,"ok":true,"token":"t","valid_ms":60000}'; echo '` + event + `' | grep lost
			read x; echo '{"id":2,"ok":true}'; read x`
		l := scripted(t, Lock{Exec: script, TTL: time.Minute}, 1)
		if !kept {
			<-l.Context().Done()
		}
		check.Equal(t, l.kept(), kept, "%q: kept", event)
		check.ErrorIs(t, l.release(t.Context()), nil)
	}
}

func TestAClientProcessKeepsItsLockUntilTheLatestEnd(t *testing.T) {
	t.Parallel()
	e := scripted(t, Lock{TTL: time.Second, Renew: Renew{Off: true}, Exec: `read x; echo '{"ok":true,"name":"a script"}'
			read x; sleep 0.1; echo '{"id":1,"ok":true,"token":"a","valid_ms":200}'; read x`}, 1)
	for over := false; !over; time.Sleep(time.Millisecond) {
		over = !time.Now().Before(e.Latest())
		if kept := e.kept(); kept && over || !kept && time.Now().Before(e.Latest()) {
			t.Fatalf("kept %t at %s before the latest end", kept, time.Until(e.Latest()))
		}
	}
	check.True(t, e.Latest().After(e.Deadline()), "it has no leeway")
}

// A client that has shown a renewal shows all: without another one, it keeps its lock no longer than it says.
func TestAClientProcessThatShowsItsRenewalsKeepsItsLockAsLongAsItSays(t *testing.T) {
	for shown, kept := range map[string]bool{"renewed": false, "noise": true} {
		l := scripted(t, Lock{TTL: time.Second, Exec: `read x; echo '{"ok":true,"name":"a script","renews":true}'
			read x; echo '{"event":"` + shown + `","token":"z","valid_ms":9}'; echo '{"id":1,"ok":true,"token":"a","valid_ms":0}'; read x`}, 1)
		check.Equal(t, l.kept(), kept, "%s: kept", shown)
	}
}

// A client process that locks twice: its first lease is that of the first reply.
func TestTheFirstEntryOfAClientProcessBeginsWithItsLease(t *testing.T) {
	l := scripted(t, Lock{Exec: `read x; echo '{"ok":true,"name":"a script","renews":true}'
			read x; echo '{"id":1,"ok":true,"token":"a","valid_ms":59000}'
			read x; echo '{"id":2,"ok":true,"token":"b","valid_ms":59000}'; read x`, TTL: time.Minute}, 2)
	first, want := l.first, l.Deadline().Add(-time.Minute)
	check.True(t, first.Equal(want), "it began %s after its lease", first.Sub(want))
}

func TestAFrozenClientProcessDoesNotRenew(t *testing.T) {
	testtier.Long(t, "it runs loads of client processes for seconds")
	m := raced(t, Scenario{
		Lock: process(Mutex, 300*time.Millisecond), Clients: 2, Keys: Keys{N: 1}, Duration: 3 * time.Second,
		Hold: Const(20 * time.Millisecond), Think: Const(time.Millisecond),
		Faults: []Fault{{At: time.Second, Kind: Freeze, Clients: 2, For: 900 * time.Millisecond}},
	})
	check.True(t, m.Lost+m.Expired == 2 && m.Faults[0].Struck == 2, "%d lost, %d expired; %s", m.Lost, m.Expired, m.Faults[0])
	check.True(t, m.Violations.Overlap.Count <= 0 && m.Violations.Broken() <= 0, "violations: %+v", m.Violations)
}

func TestTheGeneratorExtendsTheLeasesOfAClientThatDoesNotRenew(t *testing.T) {
	testtier.Long(t, "it runs loads of client processes for seconds")
	s := Scenario{
		Lock: process("extends", 400*time.Millisecond), Clients: 2, Keys: Keys{N: 1}, Duration: 3 * time.Second,
		Hold: Const(900 * time.Millisecond), Think: Const(time.Millisecond),
	}
	m := raced(t, s)
	if m.Released < 2 || m.Lost+m.Expired > 0 || m.Cost.Renewals < 8 || m.Violations.Overlap.Count > 0 {
		t.Errorf("%d released, %d lost, %d expired, %d extensions, %d overlaps", m.Released, m.Lost, m.Expired, m.Cost.Renewals, m.Violations.Overlap.Count)
	}
	s.Lock.Renew.Off = true // then only the end of the run makes a hold shorter than the TTL
	if m = raced(t, s); m.Released > 1 || m.Expired+m.Lost < 2 || m.Cost.Renewals > 0 || m.Violations.Overlap.Count > 0 {
		t.Errorf("without extensions: %d released, %d lost, %d expired, %d extensions, %d overlaps", m.Released, m.Lost, m.Expired, m.Cost.Renewals, m.Violations.Overlap.Count)
	}
}

func TestKeysWithNamesOfTheLibraryAreDeleted(t *testing.T) {
	testtier.Long(t, "it runs a load of client processes for seconds")
	m := raced(t, Scenario{ // raced checks that no key is left
		Lock: process("own-keys", time.Minute), Clients: 1, Hold: Const(10 * time.Millisecond), Duration: time.Second,
		Faults: []Fault{{At: 100 * time.Millisecond, Kind: Crash, Clients: 1}},
	})
	check.Equal(t, m.Abandoned, 1, "abandoned")
}

// A steal deletes the key of the library under its name. Where locktop may not look for it,
// because other programs may use the prefix, the report says that nothing was deleted.
func TestAStealThatDeletesNothingDoesNotStrike(t *testing.T) {
	t.Parallel()
	for prefix, struck := range map[string]int{"": 1, "D:": 0} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			t.Parallel()
			rdb := connect(t, servertest.RedisForTest(t).Addr())
			r := started(t, rdb, Scenario{
				Lock: process("own-keys", time.Minute), Keys: Keys{N: 12, Prefix: prefix, Pick: PickOne}, Clients: 1, Hold: Const(time.Minute), Duration: time.Minute,
				Faults: []Fault{{At: 300 * time.Millisecond, Kind: ExternalDelete}},
			})
			m := until(t, r, "the end of the fault", func(m Metrics) bool {
				return slices.ContainsFunc(r.Events(0), func(e Event) bool { return e.Kind == FaultEnded })
			})
			held := rdb.Keys(t.Context(), "mutex:*").Val()
			if f := m.Faults[0]; f.Struck != struck || len(held) != 1-struck || (f.Why == "") != (struck == 1) {
				t.Errorf("%v; there are %q", f, held)
			}
		})
	}
}

func TestAKeyOfALibraryIsToldFromOthers(t *testing.T) {
	for name, want := range map[string]bool{"p:1": true, "mutex:p:1": true, "p:1:owner": true, "p:12": false, "p:2": false} {
		check.Equal(t, isOf(name, "p:1"), want, "%s is of p:1", name)
	}
}

func TestAClientProcessThatExitsIsReplaced(t *testing.T) {
	testtier.Long(t, "it runs loads of client processes for seconds")
	m := raced(t, Scenario{
		Lock: process("exits", time.Second), Clients: 3, Hold: Const(100 * time.Millisecond), Think: Const(time.Millisecond), Duration: 2 * time.Second,
	})
	check.True(t, m.Errors+m.Unconfirmed >= 4 && m.Seconds[1].Acquired != 0,
		"%d errors, %d unconfirmed, %d acquired in the second second", m.Errors, m.Unconfirmed, m.Seconds[1].Acquired)
	for _, part := range []string{"client locktop mutex", "it exited", "exit status 7", "out of luck"} {
		check.Contains(t, m.LastErr, part)
	}
	check.Equal(t, m.Violations.Broken(), 0, "violations: %+v", m.Violations)
}

func TestALoadOfAClientProcessThatDoesNotGreetFails(t *testing.T) {
	r := check.Must(New(Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}, Scenario{Lock: process("garbage", time.Second)}))(t)
	err := r.Start()
	check.True(t, errors.Is(err, external.ErrNotJSON) && !strings.Contains(err.Error(), "\n"), "start: %v", err)
	check.ErrorIs(t, r.Close(), nil)
	checkNoProcess(t)
}

func TestStopEndsClientProcessesThatWaitOrAreFrozen(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	r := started(t, rdb, Scenario{
		Lock: process(Mutex, 10*time.Second), Clients: 3, Keys: Keys{N: 1}, Hold: Const(time.Minute), Duration: time.Hour,
		Faults: []Fault{{Kind: Freeze, Clients: 3}}, // the holder is one of them
	})
	until(t, r, "a frozen holder and two that wait", func(m Metrics) bool {
		return m.Clients.Holding == 1 && m.Clients.Waiting == 2 && m.Faults[0].Struck == 1
	})
	began := time.Now()
	stop(t, r)
	check.AtMost(t, time.Since(began), 5*time.Second, "the stop took")
	checkNoProcess(t)
	checkNoKeys(t, rdb)
}

func TestSettingsThatDoNotGoWithAClientProcessAreRefused(t *testing.T) {
	for _, c := range []struct {
		s    Scenario
		text string
	}{
		{Scenario{Lock: Lock{Kind: Exec}}, "needs the command"},
		{Scenario{Lock: Lock{Kind: Mutex, Exec: "x"}}, "omit kind: mutex"},
		{Scenario{Lock: Lock{Exec: "x", Wait: Wait{Poll: time.Second}}}, "wait"},
		{Scenario{Lock: Lock{Exec: "x"}, Clients: 2000}, "1 to 1000"},
		{Scenario{Lock: Lock{Exec: "x"}, Stages: []Stage{{For: time.Second, Clients: 2000}}}, "1 to 1000"},
		{Scenario{Lock: Lock{Exec: "x", Permits: 2}, Reads: 0.5}, "reads and permits"},
		{Scenario{Lock: Lock{Exec: "x", Permits: 2, KeysPerHold: 2}}, "permits and keys-per-hold"},
		{Scenario{Lock: Lock{Exec: "x", KeysPerHold: 4}}, "at least the 4"},
		{Scenario{Lock: Lock{Exec: "x", Permits: -1}}, "permits"},
		{Scenario{Lock: Lock{Exec: "x"}, Faults: []Fault{{Kind: Skew}}}, "skew needs by"},
		{Scenario{Lock: Lock{Exec: "x"}, Faults: []Fault{{Kind: Freeze, Before: "DEL it"}}}, "before"},
		{Scenario{Lock: Lock{Exec: "x"}, Faults: []Fault{{Kind: Slow, Delay: time.Second, Before: "DEL"}}}, "before"},
	} {
		err := c.s.Validate()
		check.True(t, err != nil && strings.Contains(err.Error(), c.text) && !strings.Contains(err.Error(), "\n"), "%+v: %v", c.s.Lock, err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	r, err := New(Servers{Redis: cluster}, Scenario{Lock: Lock{Exec: "true"}})
	if err == nil {
		err = r.Start()
		_ = r.Close()
	}
	check.ErrorContains(t, err, "cluster", "a cluster")
}

func TestAClientProcessHasAKnownKind(t *testing.T) {
	for _, kind := range []Kind{Exec, "latch"} {
		check.ErrorContains(t, ServeClient(t.Context(), Lock{Kind: kind}, strings.NewReader(""), os.Stdout), "one of mutex", "%s", kind)
	}
}

// settingsOf returns a scenario of client processes with the settings that only some kinds have.
func settingsOf(kind Kind) Scenario {
	s := Scenario{
		Lock: process(kind, 2*time.Second), Clients: 6, Keys: Keys{N: 1},
		Hold: Const(5 * time.Millisecond), Think: Const(2 * time.Millisecond), Duration: 30 * time.Second, Seed: 1,
	}
	switch {
	case kind.permits():
		s.Lock.Permits = 3
	case kind == All:
		s.Lock.KeysPerHold, s.Keys.N = 2, 5
	case kind.shared():
		s.Reads = 0.7
	}
	if kind.reentrant() && formOf(kind).NewReader == nil {
		s.Depth = 3
	}
	return s
}

func TestEachKindAsAClientProcessHasItsSettings(t *testing.T) {
	testtier.Long(t, "it runs loads of client processes of every kind")
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			s := settingsOf(kind)
			on := Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}
			if kind.Quorum() {
				on = nodesForTest(t)
			}
			r := check.Must(New(on, s))(t)
			running(t, r)
			most, together := 0, kind.permits() || kind == All || s.Reads > 0
			for done := r.Done(); done != nil; {
				select {
				case <-done:
					done = nil
				case <-time.After(time.Millisecond):
					m := r.Metrics()
					if most = max(most, m.Clients.Holding); m.Acquired >= 100 && (most > 1 || !together) {
						done = nil
					}
				}
			}
			check.ErrorIs(t, r.Stop(), nil)
			m := summed(t, r)
			checkNoProcess(t)
			if failed := m.Errors + m.Unconfirmed; m.Acquired < 20 || failed > 0 && !kind.Quorum() { // nodes have 40 ms for a reply, which a busy machine exceeds
				t.Errorf("%d acquired, %d errors, %d unconfirmed: %s", m.Acquired, m.Errors, m.Unconfirmed, m.LastErr)
			}
			check.True(t, !kind.Sound() || m.Violations.Overlap.Count <= 0 && m.Violations.Broken() <= 0, "violations: %+v", m.Violations)
			check.True(t, kind != Reentrant || m.CommandsPerHold() >= 6, "%.1f commands per hold of 3 entries", m.CommandsPerHold())
			check.True(t, !together || most >= 2, "at most %d inside at once", most)
		})
	}
}

func TestAScenarioThatTheHelloDoesNotOfferSaysSo(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	for setting, ask := range map[string]func(*Scenario){
		"reads: a client for this scenario must offer rw, and the hello of locktop mutex offers: mutex": func(s *Scenario) { s.Reads = 0.5 },
		"permits: a client for this scenario must offer semaphore,":                                     func(s *Scenario) { s.Lock.Permits = 2 },
		"keys-per-hold: a client for this scenario must offer all,":                                     func(s *Scenario) { s.Lock.KeysPerHold = 2 },
		"depth: a client for this scenario must offer reentrant,":                                       func(s *Scenario) { s.Depth = 2 },
		"fence: a client for this scenario must offer fences,":                                          func(s *Scenario) { s.Lock.Fence = true },
		"order: a client for this scenario must offer fair,":                                            func(s *Scenario) { *s = Scenario{Lock: Lock{Kind: Fair}, Clients: 1}.WithClient(s.Lock.Exec) },
	} {
		s := Scenario{Lock: process(Mutex, time.Second), Clients: 1}
		ask(&s)
		r := check.Must(New(Servers{Redis: rdb}, s))(t)
		err := r.Start()
		check.True(t, err != nil && strings.Contains(err.Error(), setting) && !strings.Contains(err.Error(), "\n"), "%s: %v", setting, err)
		_ = r.Close()
	}
	r := started(t, rdb, Scenario{Lock: process(Mutex, time.Second), Clients: 1, Duration: time.Hour})
	s := r.Scenario()
	s.Reads = 0.5 // applies without a new start
	check.ErrorContains(t, r.Apply(s), "must offer rw", "apply")
	stop(t, r)
	checkNoProcess(t)
}

func TestTheClockOfAClientProcessIsNotAheadUnlessItsHelloOffersThat(t *testing.T) {
	testtier.Long(t, "it runs loads of client processes for seconds")
	s := Scenario{
		Lock: process(Mutex, time.Second), Clients: 3, Keys: Keys{N: 1}, Seed: 1, Duration: time.Second,
		Hold: Const(100 * time.Millisecond), Think: Const(5 * time.Millisecond),
		Faults: []Fault{{At: 500 * time.Millisecond, Kind: Skew, By: 3 * time.Second, For: 2 * time.Second}},
	}
	m := raced(t, s)
	want := "not supported: the hello of locktop mutex does not say"
	check.True(t, m.Faults[0].Struck == 0 && strings.HasPrefix(m.Faults[0].Why, want), "%q, want %q", m.Faults[0].Why, want)
	r := started(t, connect(t, servertest.RedisForTest(t).Addr()), Scenario{Lock: s.Lock, Clients: 1, Duration: time.Hour})
	check.ErrorContains(t, r.Inject(s.Faults[0]), "not supported", "inject")
	stop(t, r)
}

func TestAFaultStrikesAClientProcessBeforeACommand(t *testing.T) {
	testtier.Long(t, "it runs loads of client processes under faults")
	for _, c := range []struct {
		kind   Kind
		before string
		hold   time.Duration
		struck int
		node   int // then it waits until no client is inside
	}{
		{"classic/setnx-expire", "EXPIRE", time.Millisecond, 1, 0}, // the form sends PEXPIRE
		{"classic/getset", "GET", 50 * time.Millisecond, 1, 0},
		{"classic/get-then-del", "del", time.Millisecond, 1, 0},
		{"classic/counted", "renew", 900 * time.Millisecond, 1, 0}, // when the TTL is over
		{Mutex, "renew", 600 * time.Millisecond, 1, 0},
		{Mutex, "renew", time.Millisecond, 0, 0}, // the scripts that acquire and release are no renewals
		{Mutex, "EVAL", time.Millisecond, 1, 0},
		{Mutex, "BLPOP", time.Millisecond, 0, 0},
		{"extends", "renew", 600 * time.Millisecond, 1, 0},
		{Mutex, "EVAL", 600 * time.Millisecond, 1, 1}, // not the renewal of a holder
	} {
		t.Run(strings.ReplaceAll(fmt.Sprint(c.kind, " ", c.before, " ", c.hold, " ", c.node), "/", "-"), func(t *testing.T) {
			t.Parallel() // it waits most of its time
			fault := Fault{At: 100 * time.Millisecond, Kind: Freeze, Before: c.before, Node: c.node, Client: 1, For: 300 * time.Millisecond}
			s := Scenario{
				Lock: process(c.kind, 800*time.Millisecond), Clients: 2, Keys: Keys{N: 1}, Seed: 1, Duration: 2 * time.Second, Faults: []Fault{fault},
				Hold: Const(c.hold), Think: Const(5 * time.Millisecond),
			}
			if c.before == "renew" {
				s.Think = Const(c.hold) // meanwhile the other client gets the lock
			}
			if c.struck == 0 {
				s.Lock.TTL = time.Minute // no renewal, however long a hold lasts on a busy machine
				s.Clients = 1            // a holder that waited may end its registration with a script
			}
			r := started(t, connect(t, servertest.RedisForTest(t).Addr()), s)
			<-r.Done()
			m := r.Metrics()
			check.Require(t, m.Faults[0].Struck == c.struck && (m.Faults[0].Why == "") == (c.struck > 0), "%v", m.Faults[0])
			if c.struck == 0 {
				return
			}
			var frozen []time.Time // its begin and end
			var entered time.Time
			for _, e := range r.Events(0) {
				if e.Kind == Acquired {
					entered = e.At
				}
				if e.Kind == FaultBegan && c.node > 0 {
					check.AtLeast(t, e.At.Sub(entered), c.hold, "from the newest acquire to the fault")
				}
				if e.Kind == FaultBegan || e.Kind == FaultEnded {
					frozen = append(frozen, e.At)
				}
			}
			check.Require(t, len(frozen) == 2 && frozen[1].Sub(frozen[0]) >= fault.For, "frozen at %v", frozen)
			for _, e := range r.Events(0) { // the command waits until the end of the freeze, and with it the client
				check.True(t, e.Client != 1 || e.Kind != Released || !e.At.After(frozen[0]) || !e.At.Before(frozen[1]),
					"the client released a lock %s before the freeze was over", frozen[1].Sub(e.At))
			}
			check.True(t, m.Violations.Broken() <= 0 || !c.kind.Sound(), "violations: %+v", m.Violations)
		})
	}
}

func TestAFileCanHaveTheCommandOfAClient(t *testing.T) {
	s := check.Must(Parse([]byte("lock: {exec: \"python3 'my client.py'\", ttl: 2s}\nversus: [mutex, {exec: ./other}]\n")))(t)
	again := check.Must(Parse(s.WithDefaults().Marshal()))(t)
	check.True(t, again.Lock.Exec == "python3 'my client.py'" && again.Lock.Kind == Exec && s.Versus[1].Exec == "./other",
		"read %+v, again %+v", s, again.Lock)
}

func TestACommandThatDoesNotStartChangesNothing(t *testing.T) {
	r := started(t, connect(t, servertest.RedisForTest(t).Addr()), Scenario{Clients: 3})
	before := r.Metrics().Began
	err := r.Apply(r.Scenario().WithClient("echo out of luck >&2; exit 3"))
	for _, part := range []string{"it exited", "exit status 3", "out of luck"} {
		check.ErrorContains(t, err, part)
	}
	if m := r.Metrics(); !m.Running || !m.Began.Equal(before) || r.Scenario().Lock.Kind != Mutex {
		t.Errorf("running %t, began %s after %s, with %s", m.Running, m.Began, before, r.Scenario().Lock)
	}
	check.NoError(t, r.Apply(r.Scenario().WithClient(process(Fair, time.Second).Exec)))
	until(t, r, "a lock of the client", func(m Metrics) bool { return m.Acquired > 0 && m.Library == "locktop fair" })
	stop(t, r)
	checkNoProcess(t)
}

func TestCloseEndsTheStartOfClientProcesses(t *testing.T) {
	testtier.Long(t, "client processes are slow to start")
	on := Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}
	file := filepath.Join(t.TempDir(), "started")
	first := fmt.Sprintf("touch '%s'; exec sleep 1000", file)
	later := fmt.Sprintf("if mkdir '%s.d' 2>/dev/null; then %s; fi; %s", file, process(Mutex, time.Second).Exec, first) // the second process hangs
	for _, command := range []string{first, later} {
		g := check.Must(NewGroup(on, Scenario{Clients: 1}.WithClient(command)))(t)
		over := make(chan error)
		go func() { over <- g.Start() }()
		for _, err := os.Stat(file); err != nil; _, err = os.Stat(file) {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		check.ErrorIs(t, g.Close(), nil)
		check.AtMost(t, time.Since(began), probeWithin/2, "close took")
		<-over
		checkNoProcess(t)
		check.NoError(t, os.Remove(file))
	}
}

func TestClientProcessesUseTheServersOfTheirQuorumOnly(t *testing.T) {
	one, two := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), redis.NewClient(&redis.Options{Addr: "127.0.0.1:2"})
	defer one.Close()
	defer two.Close()
	check.Equal(t, len(Servers{Redis: one, Nodes: []RedisClient{one, two}}.all(Exec)), 2, "servers of a quorum of 2")
	all := (Servers{Redis: two, Nodes: []RedisClient{one}}).all(Exec)
	check.True(t, len(all) == 1 && all[0] == RedisClient(two), "beside a quorum: %v", all)
}

func TestAClientHasNoCaptionAboutAHistoricForm(t *testing.T) {
	for kind, want := range map[Kind]string{"": "About.", Mutex: "About.", Exec: "About.", RW: "About.", "classic/blind-delete": ""} {
		s := Scenario{Caption: "About.", Watch: "it", Lock: Lock{Kind: kind}}.WithClient("true")
		check.True(t, s.Caption == want && (s.Watch == "") == (want == ""), "%s: caption %q, watch %q", kind, s.Caption, s.Watch)
	}
}
