package tui

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/holds"
	"locktop/loadgen"
	"locktop/tui/widget"
)

// contended returns a Config with two classes of locks: orders with waiters, and jobs without.
func contended() (Config, *fakeServer) {
	w := testConfig()
	orders, quiet := mutex("orders:1", "pay-1", time.Hour), mutex("job:1", "cron", time.Hour)
	orders.Waiters = []keyspace.Waiter{{ID: "ship-1"}, {ID: "ship-2"}}
	second := mutex("orders:2", "pay-2", time.Hour)
	second.Waiters = []keyspace.Waiter{{ID: "ship-3"}}
	v := holding(quiet, mutex("job:2", "cron", time.Hour), second, orders)
	w.Source = v
	return w, v
}

// One row stands for each class, that with the most waiting first. A lock that is gone counts for
// a minute, and the selection stays on its class.
func TestLocksAreShownByClass(t *testing.T) {
	w, v := contended()
	drive(t, w, func(d *driver) {
		d.size(140, 40).wait(10*time.Second).press("o", "o").want("sorted classes by blocked", "BLOCKED", "WORST HOLDER")
		d.wantOrder("orders:*", "job:*")
		row := strings.Join(strings.Fields(d.line("orders:*")), " ")
		const want = "▌ orders:* 2 100% 3 3.00 s/s 67% pay-1 ≥10 s ≥10 s stored"
		check.True(t, strings.HasPrefix(row, want), "the row of the class is %q, want %q", row, want)
		d.press("j").want("── job:1 ──").press("k").want("── orders:1 ──")
		v.locks, v.locks[2].Waiters = v.locks[:3], nil
		d.wait(30*time.Second).want("last minute: most waiting for orders:1, because of pay-1 (100%)", "63%", "0.77 s/s", "── orders:1 ──", "set-nx · mutex").wantOrder("orders:*", "job:*").press("enter").want("orders:1", "not held now", "100% due to pay-1").press("esc")
		v.locks[2].Waiters = []keyspace.Waiter{{ID: "ship-4"}} // it blocks a client now
		d.wait(5 * time.Second).want("most waiting for orders:2, because of pay-2").wantNot("last minute: most")
		v.locks[2].Waiters = nil
		d.wait(70*time.Second).want("── orders:2 ──").wantNot("most waiting", "s/s")
	})
}

func TestClassesHaveAnOrderOfTheirOwn(t *testing.T) {
	w, _ := contended()
	drive(t, w, func(d *driver) {
		d.size(140, 40).wait(time.Second).press(":").enter("group class").press("enter").press("s", "c").want("sorted classes by class").wantOrder("job:*", "orders:*")
		d.press("t").want("no lock to tag").size(50, 12).want("orders:*").size(140, 40)
		d.press(":").enter("sort owner").press("enter").want("sorted by owner", "job:2")
		d.press("/").enter("orders").press("enter", ":").enter("group class").press("enter").want("orders:*").wantNot("job:*")
		d.press("p").wantNot("pay-1")
	})
}

// A client that only asks has waited from its first request to its last one.
func TestALaneKnowsTheWaitsOfClientsThatOnlyAsk(t *testing.T) {
	c := timeline{}
	snap := keyspace.Snapshot{}
	for s := range 20 {
		l := mutex("a", "x", time.Hour)
		if last := min(s, 9); s >= 5 {
			if s >= 14 { // one request alone is no wait
				last = 14
			}
			l.AskedAt = after(time.Duration(last) * time.Second)
		}
		now := keyspace.Snapshot{At: after(time.Duration(s) * time.Second), Locks: []*keyspace.Lock{&l}}
		c.add(keyspace.DeltaOf(snap, now), nil)
		snap = now
	}
	n := c.lane(keyspace.ID{Key: "a"}, nil, snap.At)
	got := n.waitsIn(timeWindow{from: midnight, to: after(time.Minute)})
	check.True(t, len(got) == 1 && got[0].Clients == 1 && got[0].Source == "asked" && got[0].From.At.Equal(after(5*time.Second)) && got[0].To.At.Equal(after(9*time.Second)), "the waits are %v", got)
	p := n.past(timeWindow{from: midnight, to: after(20 * time.Second)})
	check.True(t, p.Source == "asked" && p.PerSecond() == 0.2, "the past is %+v", p)
}

// Each client has a swimlane: thin while it waits, thick while it holds, and a cross where its lease expired.
func TestEachClientOfALockHasASwimlane(t *testing.T) {
	at := func(s int) time.Time { return after(time.Duration(s) * time.Second) }
	c := timeline{}
	id := ofLoad("k")
	c.exact.Begin(id, keyspace.Holder{ID: "a~1", Label: "a"}, false, at(0))
	c.exact.End(id, "a~1", at(20), keyspace.Expired)
	c.exact.Wait(id, "b~1", at(10))
	c.exact.Leave(id, "b~1", at(30))
	c.exact.Begin(id, keyspace.Holder{ID: "b~1", Label: "b"}, false, at(30))
	c.exact.Wait(id, "c", at(40))
	c.exact.End(id, "b~1", at(50), keyspace.Released) // it has no cross
	c.owners = map[string]int{"a": 0, "b": 1}
	v := timeWindow{at(0), at(60), 6}
	n := c.lane(id, nil, at(60))
	all, more := n.swimlanes(v, swimlanesShown)
	var got []string
	theme := themeNamed("dark", renderer(termenv.Ascii))
	for _, one := range all {
		l := widget.NewLine(v.w)
		widget.Blocks().Strip(l, v.w, one.draw(theme, widget.Blocks(), v, n.contended(v)))
		got = append(got, one.client+ansi.Strip(l.String()))
	}
	want := []string{"aA▓✗   ", "b ┄┄B▓ ", "c    ┄┄"}
	check.True(t, slices.Equal(got, want) && more == 0, "the swimlanes are %q, want %q", got, want)
	for i := range swimlanesShown {
		c.exact.Wait(id, string(rune('d'+i)), at(59))
	}
	c.exact.Begin(id, keyspace.Holder{ID: "z~1", Label: "z"}, false, after(59_900*time.Millisecond))
	all, more = c.lane(id, nil, at(60)).swimlanes(v, swimlanesShown)
	check.True(t, len(all) == swimlanesShown && more == 4 && all[0].client == "z", "%d swimlanes, and %d more", len(all), more)
}

// The sums beside the screen are those of each lock by itself, at the time when they were planned: what
// happens later to the lanes does not change them.
func TestTheSumsBesideTheScreenAreThoseOfAllLocks(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	a := newApp(t.Context(), Config{})
	p, filters := a.locks(), []string{"", "order", "!order", "waiter", "owner-1"}
	p.groupBy(byClass)
	var was keyspace.Snapshot
	var plan func() waiting
	var want waiting
	waited, gone := 0, 0
	for step := range testtier.Size(200, 600, 600) {
		if random.IntN(300) == 0 {
			a.resetReplay()
			was = keyspace.Snapshot{}
		}
		now := keyspace.Snapshot{At: after(time.Duration(step) * time.Second), Complete: random.IntN(2) == 0}
		for i := range 9 {
			key := fmt.Sprintf("%s:%05d", []string{"job", "order", "report"}[i%3], i+step/10*9) // other locks after 10 s
			l := randomLock(random, key, was, now.At)
			if l.Waiting = 0; random.IntN(5) == 0 {
				l.Waiting = len(l.Waiters) + random.IntN(3)
			}
			if random.IntN(3) == 0 {
				l.AskedAt = now.At
			}
			if len(l.Holders)+len(l.Waiters) > 0 {
				now.Locks = append(now.Locks, &l)
			}
		}
		slices.SortFunc(now.Locks, keyspace.CompareLocks)
		now = keyspace.CarryOver(was, now)
		a.now = now.At
		ended := make(chan waiting, 1)
		if plan != nil {
			go func() { ended <- plan() }()
		}
		a.apply(newViewModel(now, now.At, a.live)) // meanwhile
		client := 1 + random.IntN(3)
		kind := []loadgen.EventKind{loadgen.Arrived, loadgen.Acquired, loadgen.Released, loadgen.TimedOut}[random.IntN(4)]
		a.timeline.apply([]loadgen.Event{{At: now.At, Kind: kind, Client: client, Key: fmt.Sprint("order:0000", random.IntN(9)), Token: "t"}}, false, loadgen.Lock{}, "")
		if plan != nil {
			got := <-ended
			g, w := textOf(got), textOf(want)
			check.Require(t, g == w, "step %d, filter %q: the sums are\n%s\nwant\n%s", step, want.filter, g, w)
		}
		if was = now; len(a.live.locks) == 0 {
			plan = nil
			continue
		}
		p.filter = parseFilter(filters[random.IntN(len(filters))])
		p.arrange(&a.state)
		plan = p.plan
		want = waiting{filter: p.filter.text}
		want.most, want.figures, _ = a.moment().mostBlocked()
		recent := a.moment().recent(&p.filter)
		sumOneByOne(&want, a, recent)
		waited += len(want.figures.Source)
		gone += len(recent)
	}
	check.True(t, waited != 0 && gone != 0, "clients waited %d times, %d locks were gone", waited, gone)
}

// Sums that arrive after a change of the filter, of the groups or of the time are not shown: others begin.
func TestSumsOfAnotherViewAreNotShown(t *testing.T) {
	for name, change := range map[string]func(a *app){
		"a filter": func(a *app) { a.locks().filter = parseFilter("0001") },
		"groups":   func(a *app) { a.locks().groupBy(byOwner) },
		"a seek":   func(a *app) { a.seekCount++ },
		"nothing":  func(*app) {},
	} {
		a := appWith(10)
		p := a.locks()
		p.waiting, p.summing = waiting{}, false
		p.groupBy(byClass)
		p.arrange(&a.state)
		sums := a.startSums()
		p.arrange(&a.state)
		check.True(t, a.startSums() == nil, "%s: two sums at once", name)
		change(a)
		_, next := a.Update(sums())
		check.Equal(t, p.waiting.known, name == "nothing", "%s: the sums are shown", name)
		check.Equal(t, next != nil, name != "nothing", "%s: others begin", name)
	}
}

// sumOneByOne sums up the locks that the filter selects, and some that are gone, by their pasts on the screen.
func sumOneByOne(w *waiting, a *app, gone []*keyspace.Lock) {
	sums := make(map[string]*contention.Sum)
	add := func(l *keyspace.Lock) {
		name := keyspace.ClassOf(l.Key)
		if sums[name] == nil {
			sums[name] = new(contention.Sum)
		}
		sums[name].Add(a.moment().lastMinuteOf(l.ID()))
	}
	for _, l := range a.current().locks {
		if a.locks().filter.lock(l, a.current().snap.At, "") {
			add(l)
		}
	}
	for _, l := range gone {
		add(l)
	}
	w.rows = nil
	for name, sum := range sums {
		class := sum.Class(0, name)
		w.rows = append(w.rows, lockRow{class: &class})
	}
}

// textOf returns the figures of the waiting, in the order of the classes.
func textOf(w waiting) string {
	lines := []string{fmt.Sprintf("%q: most %v %+v", w.filter, w.most, w.figures)}
	for _, r := range w.rows {
		lines = append(lines, fmt.Sprintf("%+v", *r.class))
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}

// A lock to which nothing has happened has the past that its snapshot shows, as if it had been recorded.
func TestALaneThatIsMadeLaterIsTheSame(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := state{}
	var was keyspace.Snapshot
	quiet := 0
	for step := range 2000 {
		now := keyspace.Snapshot{At: after(time.Duration(step) * time.Second), Complete: random.IntN(2) == 0}
		for i := range 8 {
			l := randomLock(random, fmt.Sprintf("lock:%05d", i+step/10*8), was, now.At) // other locks after 10 s
			if len(l.Holders)+len(l.Waiters) > 0 {
				now.Locks = append(now.Locks, &l)
			}
		}
		now = keyspace.CarryOver(was, now)
		change := keyspace.DeltaOf(was, now)
		s.timeline.add(change, change.Diff(was))
		s.live, was = &viewModel{snap: now, locks: now.Locks}, now
		s.now = now.At
		for _, l := range now.Locks {
			if s.timeline.sampled.Has(l.ID()) {
				continue
			}
			quiet++
			n, _ := s.moment().lane(l.ID(), timeWindow{})
			check.Equal(t, len(n.Holds), len(l.Holders), "holds of %s", l.Key)
			got, want := s.moment().lastMinuteOf(l.ID()), n.past(s.moment().minuteOf(n))
			got.Holds, want.Holds = nil, nil
			check.True(t, fmt.Sprint(got) == fmt.Sprint(want), "step %d: %s is %+v, want %+v", step, l.Key, got, want)
		}
	}
	check.True(t, quiet >= 1000, "only %d locks had no past", quiet)
}

// randomLock returns a lock as it was, or with other holders and waiters: every other key is a semaphore.
func randomLock(random *rand.Rand, key string, was keyspace.Snapshot, at time.Time) keyspace.Lock {
	if i := slices.IndexFunc(was.Locks, func(l *keyspace.Lock) bool { return l.Key == key }); i >= 0 && random.IntN(4) > 0 {
		return *was.Locks[i]
	}
	l := keyspace.Lock{Key: key, Kind: keyspace.Mutex, Confidence: keyspace.Certain}
	most := 1
	if key[len(key)-1]%2 == 0 {
		l.Kind, most = keyspace.Semaphore, 3
	}
	for owner := range random.IntN(most + 1) {
		h := keyspace.Holder{ID: fmt.Sprint("owner-", owner+random.IntN(2)*3), Depth: 1}
		if random.IntN(8) == 0 {
			h.ID = fmt.Sprint("since-", at.Unix(), "-", owner) // with its begin
			h.Since = at.Add(-time.Duration(random.IntN(5)) * time.Second / 2)
		}
		l.Holders = append(l.Holders, h)
	}
	if random.IntN(5) == 0 {
		l.Waiters = []keyspace.Waiter{{ID: "waiter"}}
	}
	return l
}

// While a client waits, the hold has the colour of waiting; else it is grey.
func TestAHoldHasAColourOnlyWhileAClientWaits(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	var c timeline
	id := ofLoad("k")
	for i, times := range [][2]int{{10, 30}, {40, 60}} {
		token := fmt.Sprint(i)
		c.exact.Begin(id, keyspace.Holder{ID: token, Label: token}, false, at(times[0]))
		c.exact.End(id, token, at(times[1]), keyspace.Released)
	}
	for i, times := range [][2]int{{5, 15}, {20, 25}, {25, 45}} {
		c.exact.Wait(id, fmt.Sprint(i), at(times[0]))
		c.exact.Leave(id, fmt.Sprint(i), at(times[1]))
	}
	n := c.lane(id, nil, at(100))
	theme := themeNamed("dark", renderer(termenv.TrueColor))
	view := timeWindow{at(0), at(100), 100}
	var got [][2]float64
	for _, s := range spansOf(theme, view, n.contended(view), n.drawn(), n.contended(view), nil) {
		if s.Label == "" && s.Fill == theme.warn && s.From >= 10 && s.To != 20 && s.To != 45 || s.From == 40 {
			got = append(got, [2]float64{s.From, s.To})
		}
	}
	for _, want := range [][2]float64{{10, 15}, {20, 30}, {40, 45}} {
		check.True(t, slices.Contains(got, want), "no waiting from %v to %v s: %v", want[0], want[1], got)
	}
	for _, o := range theme.owners {
		check.True(t, o.fill != theme.warn && o.fill != theme.bad && o.fill != theme.good, "an owner has a colour with a meaning: %v", o)
	}
}

// Two holders of a semaphore at once are two shared holds with a letter each, also if they begin
// in one cell, and the second does not begin when the first ends.
func TestTheHoldersOfASemaphoreHaveALetterEach(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	var c timeline
	permits := keyspace.Lock{Key: "pool", Kind: keyspace.Semaphore, Limit: 2}
	for i, kind := range []keyspace.EventKind{keyspace.Acquired, keyspace.Acquired, keyspace.Released} {
		c.add(keyspace.Delta{Snapshot: keyspace.Snapshot{At: began}}, []keyspace.Event{{At: began.Add(time.Duration(i) * time.Second), Kind: kind, Lock: permits, Holder: keyspace.Holder{ID: string(rune('a' + i%2))}}})
	}
	theme := themeNamed("dark", renderer(termenv.TrueColor))
	l := widget.NewLine(10)
	widget.Blocks().Strip(l, 10, spansOf(theme, timeWindow{began.Add(-10 * time.Second), began.Add(90 * time.Second), 10}, nil, c.lane(permits.ID(), nil, began).drawn(), nil, nil))
	check.Equal(t, ansi.Strip(l.String()), " AB▒▒▒▒▒▒▒", "drawn")
}

// A client that dies leaves its lock: the key stays locked until another client has it.
func TestALaneOfADeadClientIsBusy(t *testing.T) {
	at := func(s int) holds.Moment {
		return holds.Moment{At: time.Unix(int64(s), 0), Grade: holds.Exact}
	}
	n := &lane{Account: &holds.Account{Holds: []*holds.Hold{
		{From: at(0), To: at(1), End: holds.End{Kind: keyspace.Vanished}},
		{From: at(5), To: at(6), End: holds.End{Kind: keyspace.Released}},
		{From: at(8), To: at(9), End: holds.End{Kind: keyspace.Vanished}},
	}}}
	v := timeWindow{from: at(0).At, to: at(10).At}
	check.Equal(t, n.busy(v, true), 0.8, "share of the time in which the key was locked")
	check.Equal(t, n.busy(v, false), 0.3, "share of the time in which a client held it, as far as is known")
}
