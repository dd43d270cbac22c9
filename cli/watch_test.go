package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
)

// lines is an output that a test can wait for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // holds one value after a write
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// sees waits for a line that matches.
func (l *lines) sees(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile("(?m)" + pattern)
	deadline := time.After(longestWait)
	for !line.MatchString(l.String()) {
		select {
		case <-l.more:
		case <-deadline:
			t.Fatalf("no line like %s in\n%s", pattern, l.String())
		}
	}
}

func startWatch(t *testing.T, args ...string) *spawned {
	t.Helper()
	return spawn(t, append([]string{"watch"}, args...)...)
}

// token is the value of a SET NX lock.
const token = "5f0c9a4e-2d3b-4c8a-9e1f-7a6b5c4d3e2f"

const otherToken = "b1d2c3e4-f5a6-4b7c-8d9e-0f1a2b3c4d5e"

func TestWatchPrintsTheEventsOfALock(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"redis": servertest.RedisForTest(t).Addr(), "embedded": servertest.EmbeddedForTest(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			send(t, addr, "SET", "lock:there", token, "PX", "60000")
			w := startWatch(t, "-u", "redis://"+addr)
			w.out.sees(t, `^\d\d:\d\d:\d\d\.\d{3} appeared lock:there by .*, expires in (\d\d\.\d s|1 m 00), `)

			for n := 0; !strings.Contains(w.out.String(), " acquired "); n++ { // a busy machine reads the first ones late
				check.Require(t, n < 100, "it tells of no acquire")
				key := fmt.Sprint("lock:n", n)
				send(t, addr, "SET", key, token, "NX", "PX", "60000")
				w.out.sees(t, ` (acquired|appeared) `+key+` by `)
			}
			send(t, addr, "SET", "lock:b", token, "NX", "PX", "2000")
			w.out.sees(t, ` acquired lock:b by `)

			send(t, addr, "SET", "lock:a", token, "NX", "PX", "60000")
			w.out.sees(t, ` acquired lock:a by .*, expires in `)
			send(t, addr, "PEXPIRE", "lock:a", "120000")
			w.out.sees(t, ` renewed lock:a by .*, expires in (1 m [0-5]\d|2 m 00)`)
			send(t, addr, "DEL", "lock:a")
			w.out.sees(t, ` released lock:a of .*, held for .*, or deleted`)

			for n := 0; !strings.Contains(w.out.String(), " stolen "); n++ { // a busy machine reads some deadlines too inexactly for a proof
				check.Require(t, n < 50, "it tells of no theft")
				key := fmt.Sprint("lock:c", n)
				send(t, addr, "SET", key, token, "PX", "60000")
				w.out.sees(t, ` (acquired|appeared) `+key+` by `)
				time.Sleep(300 * time.Millisecond) // held for so long that a hold after a release would have another deadline
				send(t, addr, "SET", key, otherToken, "KEEPTTL")
				w.out.sees(t, ` (stolen|replaced) `+key+` from `+token+`, held for .*, (taken by|then) `+otherToken+`,`)
			}
			w.out.sees(t, ` expired lock:b of `)
			if name == "redis" {
				check.Equal(t, strings.Count(sent(t, addr, "CLIENT", "LIST").String(), " name=locktop"), 2, "connections, for commands and for reports")
			}

			w.signal(os.Interrupt)
			w.exits(exitInterrupted)
			slow := compiled(`(?m)^locktop: a round trip to the server takes .*\n`) // on a busy machine
			check.Equal(t, slow.ReplaceAllString(w.errs.String(), ""), "", "on stderr")
		})
	}
}

func TestWatchOutlivesTheServer(t *testing.T) {
	t.Parallel()
	c := servertest.RedisForTest(t)
	w := startWatch(t, "-u", "redis://"+c.Addr(), "--timeout", "2s")
	send(t, c.Addr(), "SET", "lock:a", token, "PX", "60000")
	w.out.sees(t, `(acquired|appeared) lock:a`)
	check.NoError(t, c.Kill())
	w.errs.sees(t, `^locktop: redis://`+regexp.QuoteMeta(c.Addr())+`/0 cannot be read: .*; trying again until it can$`)
	check.NoError(t, c.Restart(t.Context()))
	w.errs.sees(t, `^locktop: back on redis://`+regexp.QuoteMeta(c.Addr())+`/0 after .*: it was restarted$`)
	send(t, c.Addr(), "SET", "lock:b", token, "PX", "60000")
	w.out.sees(t, `(acquired|appeared) lock:b`)
	said := w.errs.String() // on a busy machine also that the first scan goes on
	check.True(t, strings.Count(said, " cannot be read: ") == 1 && strings.Count(said, "locktop: back on ") == 1,
		"it should say once that the server is gone and once that it is back, and said\n%s", said)
}

// telling is a source that returns these notices one by one, and then waits.
type telling struct{ left []keyspace.Notice }

func (a *telling) Next(ctx context.Context) ([]keyspace.Event, []keyspace.Notice, error) {
	if len(a.left) == 0 {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	n := a.left[:1]
	a.left = a.left[1:]
	return nil, n, nil
}

func (a *telling) Known() keyspace.Snapshot { return keyspace.Snapshot{} }

// aging is a source in which only the time changes.
type aging struct {
	known keyspace.Snapshot
	found []keyspace.Event // with the first snapshot
	at    time.Time
}

func (a *aging) Next(ctx context.Context) ([]keyspace.Event, []keyspace.Notice, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	found := a.found
	a.found = nil
	return found, nil, ctx.Err()
}

func (a *aging) Known() keyspace.Snapshot {
	s := a.known
	s.At = time.Now()
	if a.at.IsZero() {
		a.at = s.At
	}
	s.Server.Skew = 2*time.Second + s.At.Sub(a.at)/100 // a number in a text that always changes
	return s
}

// A lock that becomes overdue is reported at that time, once, and so is a
// server finding. What an event has reported is not repeated.
func TestAFindingThatTimeCausesIsReportedOnce(t *testing.T) {
	t.Parallel()
	const (
		servers = "finding server, warning: .* evicts keys .*\nfinding server, info: The clocks .*\n"
		late    = "finding lock:late, warning: Held for 10 m.*\n"
	)
	for _, tt := range []struct {
		wants watchOptions
		picks selection
		want  string // the part of a line that identifies it
	}{
		{want: "appeared job:nightly, .* critical: Held .*\n" + servers + late},
		{wants: watchOptions{json: true}, want: `"event":"appeared".*\n.*"id":"never-expires".*\n.*"event":"finding","node":"redis.test:6379","id":"evictable".*\n.*"id":"clock-skew".*\n.*"event":"finding","key":"lock:late",.*"id":"overdue","severity":"warning".*\n`},
		{wants: watchOptions{events: []string{"expired"}}, want: ""},
		{wants: watchOptions{events: []string{"finding"}}, want: "finding job:nightly, critical: .*\n" + servers + late},
		{picks: selection{format: "redisson"}, want: servers + late},
	} {
		synctest.Test(t, func(t *testing.T) {
			late := keyspace.Lock{Key: "lock:late", Format: "redisson", Expires: time.Now().Add(time.Hour), Holders: []keyspace.Holder{{ID: "a", Since: time.Now(), Expires: time.Now().Add(time.Hour)}}}
			stuck := keyspace.Lock{Key: "job:nightly", Holders: []keyspace.Holder{{ID: "b"}}}
			source := &aging{
				known: keyspace.Snapshot{Locks: []*keyspace.Lock{&stuck, &late}, Server: keyspace.Server{Addr: "redis.test:6379", MaxMemory: 1 << 20, Policy: "volatile-ttl"}},
				found: []keyspace.Event{{At: time.Now(), Kind: keyspace.Discovered, Lock: stuck}},
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var out bytes.Buffer
			w := &watcher{source: source, options: tt.wants, selection: &tt.picks, output: output{out: &out}, reported: make(map[findingKey]bool)}
			check.NoError(t, w.run(ctx))
			said := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3} `).ReplaceAllString(out.String(), "")
			ok, _ := regexp.MatchString("^.*"+tt.want+"$", said)
			check.True(t, ok, "got\n%swant\n%s", said, tt.want)
		})
	}
}

func TestEachNoticeAboutTheServerIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		said := newLines()
		at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
		w := &watcher{
			source: &telling{[]keyspace.Notice{
				{Kind: keyspace.ServerLost, At: at(1), Text: "refused"},
				{Kind: keyspace.ServerBack, At: at(2.5)},
				{Kind: keyspace.ServerFlushed, At: at(3), Node: "redis.test", Text: "a database was emptied"},
				{Kind: keyspace.ServerFailover, At: at(3), Node: "10.0.0.2:6379", Text: "the server is a replica now"},
				{Kind: keyspace.ServerLost, At: at(4), Text: "refused"},
				{Kind: keyspace.ServerBack, At: at(4.5), Text: "it was restarted"},
			}},
			selection: &selection{},
			output:    output{notes: messages{to: said}},
			title:     "redis://redis.test",
		}
		check.NoError(t, w.run(ctx))
		want := "locktop: redis://redis.test cannot be read: refused; trying again until it can\n" +
			"locktop: back on redis://redis.test after 1.5 s\n" +
			"locktop: redis://redis.test: a database was emptied\n" +
			"locktop: redis://redis.test: 10.0.0.2:6379: the server is a replica now\n" +
			"locktop: redis://redis.test cannot be read: refused; trying again until it can\n" +
			"locktop: back on redis://redis.test after 500 ms: it was restarted\n"
		check.True(t, said.String() == want, "got\n%swant\n%s", said, want)
	})
}

// A user loses its permissions and gets them back. watch continues. It notices that it may
// not read a lock when the lock changes.
func TestWatchGoesOnWhenItIsLetInAgain(t *testing.T) {
	t.Parallel()
	c := servertest.RedisForTest(t)
	aUser(t, c.Addr(), "ann", "on", ">pw", "~*", "&*", "+@all")
	send(t, c.Addr(), "SET", "lock:a", token, "PX", "60000")
	w := startWatch(t, "-u", "redis://ann:pw@"+c.Addr())
	w.out.sees(t, `appeared lock:a`)
	send(t, c.Addr(), "ACL", "SETUSER", "ann", "off")
	send(t, c.Addr(), "CLIENT", "KILL", "USER", "ann")
	w.errs.sees(t, `^locktop: .* cannot be read: .*WRONGPASS.*; trying again until it can$`)
	aUser(t, c.Addr(), "ann", "on")
	w.errs.sees(t, `^locktop: back on .* after `)
	send(t, c.Addr(), "ACL", "SETUSER", "ann", "resetkeys", "~nothing")
	send(t, c.Addr(), "PEXPIRE", "lock:a", "50000") // watch reads a lock that has changed
	w.errs.sees(t, `may not read known locks any more`)
	send(t, c.Addr(), "ACL", "SETUSER", "ann", "allkeys")
	w.errs.sees(t, `this user may read all known locks again`)
	if said := w.out.String(); strings.Contains(said, "released") || strings.Contains(said, "gone") {
		t.Errorf("nothing has happened to the lock, and it said\n%s", said)
	}
}

func TestASentenceTellsWhatTheScreenDoes(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 31, 7, 0, time.Local)
	l := keyspace.Lock{
		Key: "rw:catalog", Format: "redisson-rw", Kind: keyspace.RW, Fence: 812,
		Holders: []keyspace.Holder{{ID: "api-1", Mode: keyspace.Write, Depth: 2, Since: at}},
		Waiters: []keyspace.Waiter{{ID: "etl-1", Since: at}},
	}
	e := keyspace.Event{At: at, Kind: keyspace.Acquired, Lock: l, Holder: l.Holders[0]}
	got := render.EventSentence(e, findingsAbout(e), false)
	for _, want := range []string{
		"12:31:07.000 acquired rw:catalog by api-1 to write 2 times", "never expires", "1 waiting", "fence 812",
		"critical: Held without a deadline",
	} {
		check.True(t, strings.Contains(got, want), "%q is not in %q", want, got)
	}
	e.Kind = keyspace.Released
	ended := render.EventSentence(e, findingsAbout(e), false)
	check.False(t, strings.Contains(ended, "critical"), "what is over is complained of: %q", ended)
}

// A watch may end before its first scan: locks that it has not found are missing then.
func TestAWatchThatEndsBeforeItsFirstScanSaysSo(t *testing.T) {
	for complete, want := range map[bool]string{
		false: "warning: the first scan goes on: 100 of 3,000 keys had been read by then\n",
		true:  "",
	} {
		var said bytes.Buffer
		read := keyspace.Snapshot{Complete: complete, Cost: keyspace.Cost{Scanned: 100, Keys: 3000}}
		w := &watcher{source: &aging{known: read}, output: output{notes: messages{to: &said}}}
		check.NoError(t, w.missing())
		check.Contains(t, said.String(), want)
		check.Equal(t, said.Len() > 0, !complete, "it warns")
	}
}

// While the first scan lasts, and by its end, a watch says what it may miss.
func TestAWatchSaysThatItsFirstScanGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		source := &aging{known: keyspace.Snapshot{Nodes: []keyspace.Node{{Up: true}}, Cost: keyspace.Cost{Scanned: 330, Keys: 3000}}}
		w := &watcher{source: source, output: output{notes: messages{to: &said}}}
		for range 5 {
			w.warn()
			time.Sleep(findingsInterval)
		}
		source.known.Complete, source.known.Watch.Limitations = true, []string{"another", "holds shorter than 6 s may be missed"}
		for range 9 {
			w.warn()
			time.Sleep(findingsInterval)
			source.known.Watch.Lag, source.known.Nodes[0].Ping = 400*time.Millisecond, 100*time.Millisecond
		}
		check.Equal(t, said.String(), "locktop: the first scan goes on, 11 % of the keys read: until it ends, holds under a name that begins like no known lock may be missed\n"+
			"locktop: the first scan has ended; holds shorter than 6 s may be missed\n"+
			"locktop: a round trip to the server takes 100 ms, and changes are read up to 400 ms late: shorter holds may be missed\n")
	})
}

// A watch that ends while the server cannot be read does not say that it does not answer: it may refuse. A watch that
// may not read all keys ends like a list.
func TestTheEndOfAWatchSaysWhatWasNotRead(t *testing.T) {
	for _, c := range []struct {
		known keyspace.Snapshot
		lost  time.Time
		want  string
	}{
		{keyspace.Snapshot{}, time.Now().Add(-time.Minute), "incomplete: redis.test could not be read for 1 m"},
		{keyspace.Snapshot{Problems: []string{"few rights"}, Nodes: []keyspace.Node{{Up: true, Scanned: true}}}, time.Time{}, "incomplete: few rights"},
		{keyspace.Snapshot{Problems: []string{"few rights"}, Nodes: []keyspace.Node{{Up: true}}}, time.Time{}, ""},
		{keyspace.Snapshot{Complete: true, Problems: []string{"no INFO"}, Nodes: []keyspace.Node{{Up: true, Scanned: true}}}, time.Time{}, ""},
	} {
		w := &watcher{source: &aging{known: c.known}, title: "redis.test", lostAt: c.lost}
		err := w.missing()
		check.True(t, err == nil && c.want == "" || err != nil && strings.HasPrefix(err.Error(), c.want), "%+v: it ends with %v, want %q", c.known, err, c.want)
	}
}

// The master fails with a lock that no replica has received, and Sentinels replace it.
func TestWatchGoesOnOnTheServerThatTakesTheMastersPlace(t *testing.T) {
	long(t, "Sentinels replace a master")
	rig := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{Replicas: 1})
	master, replica := rig.Master().Addr(), rig.Replicas()[0]
	replicated(t, master, "SET", "lock:a", token, "PX", "600000")
	w := startWatch(t, append([]string{"--timeout", "500ms"}, sentinelFlags(rig)...)...)
	w.out.sees(t, `appeared lock:a`)
	replicated(t, master, "SET", "lock:kept", token, "PX", "600000")
	w.out.sees(t, `acquired lock:kept`)
	check.NoError(t, replica.Freeze())
	send(t, master, "CLIENT", "KILL", "TYPE", "replica") // what it sends from now on is lost
	send(t, master, "SET", "lock:b", token, "PX", "600000")
	w.out.sees(t, `acquired lock:b`)
	check.NoError(t, errors.Join(rig.Master().Kill(), replica.Continue()))
	w.errs.sees(t, `^locktop: .*has taken the place of `+master+`$`)
	w.out.sees(t, `lost lock:b`)
	send(t, replica.Addr(), "DEL", "lock:kept")
	w.out.sees(t, `(released|deleted) lock:kept of .*, held for`)
	said := w.out.String()
	check.True(t, strings.Count(said, " appeared lock:") == 1 && strings.Count(said, " lost lock:") == 1 && !strings.Contains(said, "gone"),
		"a lock that is kept has another event than its release:\n%s", said)
}

// A replica takes the place of a master, once on request and once after a crash. The
// locks that it has are the same locks.
func TestWatchKnowsTheLocksOfAClusterAfterAFailover(t *testing.T) {
	long(t, "a cluster replaces a master")
	c := aClusterFor(t, servertest.ClusterOptions{Replicas: 1}, 1, 10)
	calm, dying := c.Nodes()[3], c.Nodes()[4]           // the replicas of the first two masters
	lost := "lock:{" + tagOf(t, c.rdb, 8000) + "}:lost" // of the second master
	w := startWatch(t, c.flags...)
	for i := range 10 {
		w.out.sees(t, fmt.Sprintf("appeared lock:%d ", i))
	}
	w.out.sees(t, "appeared "+c.moving(0))
	send(t, calm.Addr(), "CLUSTER", "FAILOVER")
	w.errs.sees(t, calm.Addr()+" has taken the place of "+c.Nodes()[0].Addr())

	check.NoError(t, dying.Freeze())
	master := c.Nodes()[1]
	send(t, master.Addr(), "CLIENT", "KILL", "TYPE", "replica") // what it sends from now on is lost
	send(t, master.Addr(), "SET", lost, token, "PX", "600000")
	w.out.sees(t, "acquired "+lost)
	check.NoError(t, errors.Join(master.Kill(), dying.Continue()))
	w.out.sees(t, "lost "+lost)
	send(t, calm.Addr(), "DEL", c.moving(0))
	w.out.sees(t, "released "+c.moving(0))
	said := w.out.String()
	check.True(t, strings.Count(said, " appeared lock:") == 11 && strings.Count(said, " lost lock:") == 1 && !strings.Contains(said, "gone"),
		"a lock that is kept has another event than its release:\n%s", said)
}
