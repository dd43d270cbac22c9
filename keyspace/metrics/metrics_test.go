package metrics_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/metrics"
)

var t0 = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// page has the value of each series of an exporter, by its name and labels without quotes.
type page map[string]float64

// scrape reads the page of an exporter. It fails the test if a series is there twice. The
// lab/compat reads such a page with Prometheus' parser.
func scrape(t testing.TB, e *metrics.Exporter) page {
	t.Helper()
	var text strings.Builder
	check.NoError(t, e.Write(&text))
	p := make(page)
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(strings.ReplaceAll(line, `"`, ""))
		end := strings.LastIndex(line, " ")
		_, twice := p[line[:end]]
		check.Require(t, !twice, "%s is there twice", line[:end])
		p[line[:end]] = check.Must(strconv.ParseFloat(line[end+1:], 64))(t)
	}
	return p
}

// want fails the test unless the series have these values. A series that must not exist
// has the value absent.
func (p page) want(t *testing.T, want map[string]float64) {
	t.Helper()
	for _, series := range slices.Sorted(maps.Keys(want)) {
		got, ok := p[series]
		w := want[series]
		check.True(t, (ok || w == absent) && (!ok || got == w), "%s is %v (there: %v), want %v", series, got, ok, w)
	}
}

// absent is the wanted value of a series that must not exist.
const absent = -1

func lock(key string, holders ...keyspace.Holder) keyspace.Lock {
	l := keyspace.Lock{Key: key, Format: "set-nx", Kind: keyspace.Mutex, Holders: holders, Node: "a:1"}
	for _, h := range holders {
		l.Expires = h.Expires
	}
	return l
}

func held(since, expires time.Duration) keyspace.Holder {
	h := keyspace.Holder{ID: "token", Depth: 1}
	if since != 0 {
		h.Since = t0.Add(since)
	}
	if expires != 0 {
		h.Expires = t0.Add(expires)
	}
	return h
}

func refs(locks []keyspace.Lock) []*keyspace.Lock {
	var all []*keyspace.Lock
	for i := range locks {
		all = append(all, &locks[i])
	}
	return all
}

func reading(locks ...keyspace.Lock) metrics.Reading {
	return metrics.Reading{Snapshot: keyspace.Snapshot{
		At: t0, Locks: refs(locks), Complete: true, Cost: keyspace.Cost{Keys: 1234},
		Nodes: []keyspace.Node{
			{Server: keyspace.Server{Addr: "a:1"}, Up: true, ScannedAt: t0.Add(-3 * time.Second), ScanTime: time.Second},
			{Server: keyspace.Server{Addr: "b:1"}, Up: true, ScannedAt: t0.Add(-9 * time.Second), ScanTime: 2500 * time.Millisecond},
		},
	}}
}

// named returns targets with these names.
func named(names ...string) (all []metrics.Target) {
	for _, name := range names {
		all = append(all, metrics.Target{Name: name, Flags: "-u " + name})
	}
	return all
}

func TestTheMetricsSayWhatASnapshotShows(t *testing.T) {
	e := metrics.New(metrics.Options{Version: "1", Locks: []string{"lock:a", "lock:none", "lock:endless"}}, named("orders")...)
	waiting := lock("lock:b")
	waiting.Format, waiting.DB, waiting.Waiting = "redisson-fair", 0, 3
	endless := lock("lock:endless", held(0, 0))
	redlock := lock("lock:r", held(-time.Minute, time.Minute))
	redlock.Kind = keyspace.Redlock
	redlock.Votes = []keyspace.Vote{{Token: "x"}, {Token: "y"}, {Token: "y"}, {}, {Unreachable: true}}
	r := reading(lock("lock:a", held(-time.Hour, 30*time.Second)), waiting, endless, redlock)
	r.Commands, r.ServerTime = map[string]int64{"scan": 7}, 250*time.Millisecond
	r.Events = []keyspace.Event{
		{Kind: keyspace.Released, Lock: lock("lock:z"), Held: 20 * time.Millisecond},
		{Kind: keyspace.Expired, Lock: lock("lock:z"), Held: 2 * time.Hour},
		{Kind: keyspace.Released, Lock: lock("lock:z")}, // its duration is unknown
		{Kind: keyspace.Renewed, Lock: lock("lock:z"), Held: time.Second},
	}
	e.Observe(0, r)
	const of = "target=orders,db=0,format=set-nx"
	start := float64(t0.Unix())
	scrape(t, e).want(t, map[string]float64{
		"locktop_target_info{target=orders,flags=-u orders}": 1,
		"locktop_up{target=orders}":                          1, "locktop_pass_complete{target=orders}": 1,
		"locktop_pass_last_timestamp_seconds{target=orders}": start - 9, "locktop_pass_duration_seconds{target=orders}": 2.5,
		"locktop_keys_seen{target=orders}": 1234, "locktop_server_busy_seconds_total{target=orders}": 0.25,
		"locktop_commands_total{target=orders,command=scan}": 7,

		"locktop_locks{" + of + ",state=held}": 2, "locktop_locks{" + of + ",state=partial}": 1, "locktop_locks{" + of + ",state=read}": 0,
		"locktop_locks{target=orders,db=0,format=redisson-fair,state=waiting}": 1, "locktop_waiters{target=orders,db=0,format=redisson-fair}": 3,
		"locktop_oldest_hold_timestamp_seconds{" + of + "}": start - 3600, "locktop_oldest_hold_timestamp_seconds{target=orders,db=0,format=redisson-fair}": absent,
		"locktop_findings{target=orders,finding=overdue,severity=warning}": 1, "locktop_findings{target=orders,finding=never-expires,severity=critical}": 1,
		"locktop_findings{target=orders,finding=node-missing,severity=critical}": 0,

		"locktop_events_total{" + of + ",event=released}": 2, "locktop_events_total{" + of + ",event=expired}": 1, "locktop_events_total{" + of + ",event=stolen}": 0,
		"locktop_hold_seconds_count{" + of + "}": 2, "locktop_hold_seconds_sum{" + of + "}": 7200.02,
		"locktop_hold_seconds_bucket{" + of + ",le=0.01}": 0, "locktop_hold_seconds_bucket{" + of + ",le=0.05}": 1, "locktop_hold_seconds_bucket{" + of + ",le=+Inf}": 2,

		"locktop_redlock_copies{target=orders,state=held}": 2, "locktop_redlock_copies{target=orders,state=other}": 1,
		"locktop_redlock_copies{target=orders,state=missing}": 1, "locktop_redlock_copies{target=orders,state=unreachable}": 1,

		"locktop_lock_held{target=orders,db=0,lock=lock:a}": 1, "locktop_lock_held{target=orders,db=0,lock=lock:none}": 0,
		"locktop_lock_deadline_timestamp_seconds{target=orders,db=0,lock=lock:a}": start + 30, "locktop_lock_held_since_timestamp_seconds{target=orders,db=0,lock=lock:a}": start - 3600,
		"locktop_lock_held{target=orders,db=0,lock=lock:endless}": 1, "locktop_lock_deadline_timestamp_seconds{target=orders,db=0,lock=lock:endless}": absent,
		"locktop_lock_held{target=orders,db=0,lock=lock:b}": absent, // it is not listed
	})
}

// What is not known has no sample: it is not 0.
func TestWhatIsUnknownHasNoSample(t *testing.T) {
	e := metrics.New(metrics.Options{Locks: []string{"lock:none"}, Classes: true, Shows: func(format string) bool { return format != "set-nx" }}, named("a")...)
	r := reading(lock("lock:a", held(0, time.Minute)))
	r.Complete, r.Cost.Keys = false, 0
	e.Observe(0, r)
	scrape(t, e).want(t, map[string]float64{
		"locktop_keys_seen{target=a}": absent, "locktop_waiters{target=a,db=0,format=set-nx}": absent, "locktop_class_waiters{target=a,db=0,class=lock:a}": absent,
		"locktop_findings{target=a,db=,class=,finding=never-expires,severity=critical}": absent, "locktop_lock_held{target=a,db=0,lock=lock:none}": absent,
	})
	r = reading(lock("lock:a", held(0, time.Minute)))
	r.Locks[0].Waiting = 2
	e.Observe(0, r)
	scrape(t, e).want(t, map[string]float64{
		"locktop_keys_seen{target=a}": 1234, "locktop_waiters{target=a,db=0,format=set-nx}": 2, "locktop_class_waiters{target=a,db=0,class=lock:a}": 2,
		"locktop_findings{target=a,db=,class=,finding=never-expires,severity=critical}": 0, "locktop_lock_held{target=a,db=0,lock=lock:none}": 0,
	})
}

// Counters go on, gauges are those of the last reading, and a series stays when its last
// lock is gone.
func TestCountersAddUpAndGaugesDoNot(t *testing.T) {
	e := metrics.New(metrics.Options{Classes: true}, named("a", "b")...)
	r := reading(lock("lock:1", held(0, time.Minute)))
	r.Events = []keyspace.Event{{Kind: keyspace.Acquired, Lock: *r.Locks[0]}}
	e.Observe(0, r)
	e.Observe(0, r)
	r = reading()
	e.Observe(0, r)
	scrape(t, e).want(t, map[string]float64{
		"locktop_events_total{target=a,db=0,format=set-nx,event=acquired}": 2,
		"locktop_locks{target=a,db=0,format=set-nx,state=held}":            0,
		"locktop_class_locks{target=a,db=0,class=lock:*}":                  0,
		"locktop_up{target=b}": 0,
		"locktop_events_total{target=b,db=0,format=set-nx,event=acquired}": absent,
	})
}

// A target that is down has one reason. The age of the metrics is that of the server that
// has not answered for longest, of those that do.
func TestATargetSaysWhyItIsDownAndHowOldItsMetricsAre(t *testing.T) {
	e := metrics.New(metrics.Options{}, metrics.Target{Name: "a"}, metrics.Target{Name: "b"})
	r := reading()
	r.EventsDropped = 3
	r.Nodes[0].AnsweredAt, r.Nodes[1].AnsweredAt = t0.Add(-time.Second), t0.Add(-2*time.Second)
	r.Nodes = append(r.Nodes, keyspace.Node{Server: keyspace.Server{Addr: "c:1"}, AnsweredAt: t0.Add(-time.Hour)})
	e.Observe(0, r)
	e.Observe(0, r)
	check := func(up float64, why metrics.DownReason) {
		t.Helper()
		want := map[string]float64{
			"locktop_up{target=a}": up, "locktop_last_answer_timestamp_seconds{target=a}": float64(t0.Unix()) - 2,
			"locktop_events_dropped_total{target=a}": 6, "locktop_last_answer_timestamp_seconds{target=b}": absent,
		}
		for _, r := range metrics.DownReasons() {
			want["locktop_down_reason{target=a,reason="+string(r)+"}"] = 0
		}
		if why != "" {
			want["locktop_down_reason{target=a,reason="+string(why)+"}"] = 1
		}
		scrape(t, e).want(t, want)
	}
	check(1, "")
	e.Fail(0, metrics.ReplyTimeout)
	check(0, metrics.ReplyTimeout)
	e.Fail(0, metrics.Refused)
	check(0, metrics.Refused)
	r.EventsDropped = 0
	e.Observe(0, r)
	check(1, "")
}

// Nobody knows how many locks a server has that does not answer.
func TestATargetThatDoesNotAnswerHasNoGauges(t *testing.T) {
	e := metrics.New(metrics.Options{Locks: []string{"lock:1"}, Classes: true}, named("a")...)
	r := reading(lock("lock:1", held(-time.Hour, time.Minute)))
	r.Events = []keyspace.Event{{Kind: keyspace.Acquired, Lock: *r.Locks[0]}}
	e.Observe(0, r)
	e.Fail(0, metrics.Refused)
	p := scrape(t, e)
	p.want(t, map[string]float64{
		"locktop_up{target=a}": 0, "locktop_events_total{target=a,db=0,format=set-nx,event=acquired}": 1,
		"locktop_pass_last_timestamp_seconds{target=a}": float64(t0.Unix()) - 9,
	})
	for series := range p {
		for _, gauge := range []string{"locktop_locks{", "locktop_waiters", "locktop_findings", "locktop_lock_held{", "locktop_class", "locktop_pass_complete"} {
			check.True(t, !strings.HasPrefix(series, gauge), "%s is still there", series)
		}
	}
}

// Whether a recording works does not depend on its target.
func TestARecordingHasAMetric(t *testing.T) {
	e := metrics.New(metrics.Options{}, named("a", "b", "c")...)
	e.ObserveRecording(0, true)
	e.ObserveRecording(1, true)
	e.ObserveRecording(1, false)
	e.Fail(1, metrics.Refused)
	scrape(t, e).want(t, map[string]float64{
		"locktop_recording_up{target=a}": 1, "locktop_recording_up{target=b}": 0, "locktop_recording_up{target=c}": absent,
	})
}

func TestAnExporterIsReadyAfterTheFirstScanOfEachTargetThatAnswers(t *testing.T) {
	e := metrics.New(metrics.Options{}, named("a", "b")...)
	step := func(what string, ready bool) {
		t.Helper()
		check.True(t, e.Ready() == ready, "%s: ready is %v", what, !ready)
	}
	step("at first", false)
	part := reading()
	part.Complete = false
	e.Observe(0, part)
	e.Fail(1, metrics.Refused)
	step("in the first scan", false)
	e.Observe(0, reading())
	step("after the scan, and one target is down", true)
	e.Observe(1, part)
	step("the other target is back", false)
	e.Observe(1, reading())
	e.Observe(0, part)
	step("a scan that starts again", true)
}

// Keys that may not be read make a scan incomplete, but do not keep the exporter from being ready.
func TestUnreadKeysMakeAScanIncomplete(t *testing.T) {
	e := metrics.New(metrics.Options{}, named("a")...)
	few := reading()
	few.Complete = false
	few.Nodes = []keyspace.Node{{Server: keyspace.Server{Addr: "a:1"}, Up: true, Scanned: true, Unread: "1 key of it"}}
	e.Observe(0, few)
	check.True(t, e.Ready(), "it is not ready")
	scrape(t, e).want(t, map[string]float64{
		"locktop_up{target=a}": 1, "locktop_pass_complete{target=a}": 0, "locktop_findings{target=a,finding=locks-unread,severity=warning}": 1,
	})
}

func TestALockOfSeveralDatabasesHasASeriesForEach(t *testing.T) {
	e := metrics.New(metrics.Options{Locks: []string{"lock:1"}}, named("a")...)
	second := lock("lock:1", held(0, time.Minute))
	second.DB = 2
	r := reading(second)
	r.DB = metrics.AllDatabases
	e.Observe(0, r)
	e.Observe(0, metrics.Reading{Snapshot: reading().Snapshot, DB: metrics.AllDatabases})
	scrape(t, e).want(t, map[string]float64{
		"locktop_lock_held{target=a,db=2,lock=lock:1}": 0, "locktop_lock_held{target=a,db=0,lock=lock:1}": absent,
	})
}

func TestClassesCollapseIDs(t *testing.T) {
	for key, want := range map[string]string{
		"lock:order:4711":                              "lock:order:*",
		"lock:order:4711:payment":                      "lock:order:*:payment",
		"lock:{user:42}:cart":                          "lock:{user:*}:cart",
		"job/3f0e4f3c-aaaa-bbbb-cccc-0123456789ab":     "job/*",
		"job/deadbeef-aaaa-bbbb-cccc-deadbeefcafe/run": "job/*/run",
		"lock:5f4dcc3b5aa765d61d8327deb882cf99":        "lock:*",
		"lock:deadbeefcafebabe":                        "lock:*",
		"nightly-report":                               "nightly-report",
		"leader":                                       "leader",
		"face-off":                                     "face-off",
		"shard-7-face":                                 "shard-*",
		"":                                             "",
		":":                                            ":",
		"other":                                        "other",
		"lock:\xff\xfe:x":                              "lock:\uFFFD:x",
		"mail:ann@example.com":                         "mail:ann@example.com",
		"mail:\"a\\b\"\n":                              `mail:\a\\b\\n`, // scrape removes the quotes
		"lock:" + strings.Repeat("long.", 40):          "lock:" + strings.Repeat("long.", 22) + "lo…",
		"lock:" + strings.Repeat("é", 100):             "lock:" + strings.Repeat("é", 56) + "…",
		"2026-11-22T03:10:00":                          "*:*:*",
		"report." + strings.Repeat("1", 200) + ".of.tenant": "report.*.of.tenant",
	} {
		e := metrics.New(metrics.Options{Classes: true}, named("a")...)
		e.Observe(0, reading(lock(key, held(0, time.Minute))))
		scrape(t, e).want(t, map[string]float64{"locktop_class_locks{target=a,db=0,class=" + want + "}": 1})
	}
}

// There are at most 200 classes of their own, the largest of the first reading among
// them; none comes and goes, and all locks are counted.
func TestTooManyClassesAreCountedTogether(t *testing.T) {
	e := metrics.New(metrics.Options{Classes: true}, named("a")...)
	word := func(i int) string { return string(rune('g'+i/20)) + string(rune('g'+i%20)) }
	var locks []keyspace.Lock
	for i := range 250 {
		locks = append(locks, lock(word(i), held(0, 0)))
	}
	for range 5 { // the largest class comes last
		locks = append(locks, lock(word(399)+":1", held(0, 0)))
	}
	const finding = ",finding=never-expires,severity=critical}"
	sum := func(p page) (classes int, locks float64) {
		t.Helper()
		found, all := 0, 0.0
		for series, v := range p {
			if strings.HasPrefix(series, "locktop_class_locks") {
				classes++
				locks += v
			}
			if strings.HasSuffix(series, finding) && !strings.Contains(series, ",class=,") {
				found++
				all += v
			}
		}
		check.True(t, found == classes && all == locks, "%v findings in %d classes, want %v in %d", all, found, locks, classes)
		return classes, locks
	}
	e.Observe(0, reading(locks...))
	p := scrape(t, e)
	n, all := sum(p)
	check.True(t, n == 201 && all == 255, "%d classes with %v locks, want 201 with 255", n, all)
	p.want(t, map[string]float64{
		"locktop_class_locks{target=a,db=0,class=" + word(399) + ":*}": 5,
		"locktop_class_locks{target=a,db=0,class=other}":               51,
		"locktop_findings{target=a,db=0,class=other" + finding:         51,
		"locktop_classes_dropped{target=a}":                            51,
	})
	e.Observe(0, reading(lock("quite:new", held(0, 0))))
	n, all = sum(scrape(t, e))
	check.True(t, n == 201 && all == 1, "later %d classes with %v locks, want 201 with 1", n, all)
}

// The ratio counts held locks of servers that show requests.
func TestTheAskedRatioIsThatOfHeldLocksWhoseRequestsAreSeen(t *testing.T) {
	e := metrics.New(metrics.Options{Classes: true}, named("a")...)
	asked, waited, blind := lock("q:1", held(0, time.Minute)), lock("q:2", held(0, time.Minute)), lock("x:1", held(0, time.Minute))
	asked.AskedAt, waited.Waiting, blind.Node = t0, 3, "lfu:1"
	r := reading(asked, waited, lock("q:3", held(0, time.Minute)), lock("q:4", held(0, time.Minute)), blind)
	r.Nodes = append(r.Nodes, keyspace.Node{Server: keyspace.Server{Addr: "lfu:1"}, Up: true, AskBlind: "LFU"})
	e.Observe(0, r)
	scrape(t, e).want(t, map[string]float64{
		"locktop_asked_ratio{target=a,db=0,class=q:*}": 0.5,
		"locktop_asked_ratio{target=a,db=0,class=x:*}": absent,
	})
}

// As many clients as waited for a lock at two readings count for the time between, and no client for another lock
// of its class. A client that only asks counts as one, until its last request; a pause in which nothing was read
// counts as nothing.
func TestTheWaitingOfAClassAddsUp(t *testing.T) {
	e := metrics.New(metrics.Options{Classes: true}, named("a")...)
	at := func(s int, waiting int, asked bool) metrics.Reading {
		queue, polled, other := lock("q:1", held(0, time.Minute)), lock("p:1", held(0, time.Minute)), lock("q:2", held(0, time.Minute))
		queue.Waiting, other.Waiting = waiting, 5-waiting
		if s < 60 {
			other.Waiting = 0
		}
		r := reading(queue, polled, other)
		r.At = t0.Add(time.Duration(s) * time.Second)
		if asked {
			polled.AskedAt = r.At
			r.Locks[1] = &polled
		}
		return r
	}
	for _, step := range []struct {
		reading      metrics.Reading
		queue, polls float64
	}{
		{at(0, 3, false), 0, 0}, {at(2, 1, true), 2, 0}, {at(3, 5, true), 3, 1}, {at(60, 5, true), 3, 1}, {at(61, 4, false), 7, 1}, {at(62, 0, false), 8, 1}, {at(63, 4, true), 9, 1},
	} {
		e.Observe(0, step.reading)
		scrape(t, e).want(t, map[string]float64{
			"locktop_blocked_seconds_total{target=a,db=0,class=q:*}": step.queue,
			"locktop_blocked_seconds_total{target=a,db=0,class=p:*}": step.polls,
		})
	}
}

// An event of a lock says how many waited at its time: the waiting before it and after it count apart.
func TestTheWaitingOfAClassIsCountedFromEventToEvent(t *testing.T) {
	e := metrics.New(metrics.Options{Classes: true}, named("a")...)
	at := func(ms, waiting int) (metrics.Reading, keyspace.Event) {
		l := lock("q:1", held(0, time.Minute))
		l.Waiting = waiting
		r := reading(l)
		r.At = t0.Add(time.Duration(ms) * time.Millisecond)
		return r, keyspace.Event{At: r.At, Kind: keyspace.Acquired, Lock: l}
	}
	first, _ := at(0, 2)
	e.Observe(0, first)
	next, _ := at(1000, 2)
	_, handedOver := at(250, 4)
	_, again := at(750, 5)
	next.Events = []keyspace.Event{handedOver, again}
	e.Observe(0, next)
	scrape(t, e).want(t, map[string]float64{"locktop_blocked_seconds_total{target=a,db=0,class=q:*}": 0.25*2 + 0.5*4 + 0.25*2})
}

// A finding of a lock has its class, so that an alert can be sent to the owner of the lock. One
// of a server has none.
func TestAFindingHasTheClassOfItsLock(t *testing.T) {
	endless := func(db int, key string) keyspace.Lock {
		l := lock(key, held(0, 0))
		l.DB = db
		return l
	}
	all := reading(endless(0, "order:1"), endless(0, "order:2"), endless(3, "order:3"), endless(0, "nightly"), lock("mail:1", held(0, time.Minute)))
	all.Nodes[1].Up, all.Nodes[1].Error = false, "refused"
	e := metrics.New(metrics.Options{Classes: true}, named("a")...)
	const never, missing = ",finding=never-expires,severity=critical}", ",finding=node-missing,severity=critical}"
	byClass := func(orders, others, without float64) {
		t.Helper()
		scrape(t, e).want(t, map[string]float64{
			"locktop_findings{target=a,db=0,class=order:*" + never: orders,
			"locktop_findings{target=a,db=3,class=order:*" + never: others,
			"locktop_findings{target=a,db=0,class=nightly" + never: others,
			"locktop_findings{target=a,db=0,class=mail:*" + never:  absent, // it has had no finding
			"locktop_findings{target=a,db=,class=" + never:         0,
			"locktop_findings{target=a,db=,class=" + missing:       without,
		})
	}
	inAll := func(n, without float64) {
		t.Helper()
		scrape(t, e).want(t, map[string]float64{
			"locktop_findings{target=a" + never: n, "locktop_findings{target=a" + missing: without,
			"locktop_findings{target=a,db=0,class=order:*" + never: absent,
		})
	}
	e.Observe(0, all)
	byClass(2, 1, 1)
	e.Observe(0, reading(endless(0, "order:1"))) // a series stays, so that its alert ends
	byClass(1, 0, 0)
	e = metrics.New(metrics.Options{}, named("a")...)
	e.Observe(0, all)
	inAll(4, 1)
	e.Observe(0, reading())
	inAll(0, 0)
}

func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	e := metrics.New(metrics.Options{Classes: true}, named("a")...)
	formats := []string{"f1", "f2", "f3"}
	var locks []keyspace.Lock
	for i := range 5_000 {
		l := lock(fmt.Sprintf("q%xz:%d", i, i), held(0, time.Minute))
		l.Format = formats[i%len(formats)]
		locks = append(locks, l)
	}
	e.Observe(0, reading(locks...))
	check.AtMost(t, len(scrape(t, e)), 1050, "series")
}
