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
	"locktop/keyspace"
	"locktop/keyspace/contention"
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
		d.wait(30*time.Second).want("most blocked: orders:1 by pay-1 (100%)", "63%", "0.77 s/s", "── orders:1 ──", "set-nx · mutex").wantOrder("orders:*", "job:*").press("enter").want("orders:1", "not held now", "100% due to pay-1").press("esc")
		d.wait(time.Minute).want("── orders:2 ──").wantNot("most blocked", "s/s")
	})
}

func TestClassesHaveAnOrderOfTheirOwn(t *testing.T) {
	w, _ := contended()
	w.Memory = &fakeMemory{}
	drive(t, w, func(d *driver) {
		d.size(140, 40).wait(time.Second).press(":").enter("group class").press("enter").press("right").want("sorted classes by class").wantOrder("job:*", "orders:*")
		d.press("t").want("no lock to tag").size(50, 12).want("orders:*").size(140, 40)
		d.app.remember()
		d.press(":").enter("sort owner").press("enter").want("sorted by owner", "job:2")
		d.press("/").enter("orders").press("enter", ":").enter("group class").press("enter").want("orders:*").wantNot("job:*")
		d.press("p").wantNot("pay-1")
	})
	m := w.Memory.(*fakeMemory)
	check.True(t, m.Sort == "severity", "the order of classes is remembered as %q", m.Sort)
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
	n := c.of(keyspace.ID{Key: "a"})
	want := []laneWait{{n: 1, asked: true, from: after(5 * time.Second), to: after(9 * time.Second)}}
	got := n.waitsIn(timeWindow{from: midnight, to: after(time.Minute)})
	check.True(t, slices.Equal(got, want), "the waits are %v, want %v", got, want)
	p := n.past(timeWindow{from: midnight, to: after(20 * time.Second)})
	check.True(t, p.Rung == "asked" && p.PerSecond() == 0.2, "the past is %+v", p)
}

// Each client has a swimlane: thin while it waits, thick while it holds, and a cross where its
// lease expired.
func TestEachClientOfALockHasASwimlane(t *testing.T) {
	at := func(s int) time.Time { return after(time.Duration(s) * time.Second) }
	n := &lane{}
	n.begin(timelineHold{holder: "a~1", name: "a", from: at(0)})
	n.end("a~1", at(20), true)
	n.begin(timelineHold{holder: "b~1", name: "b", from: at(30)})
	n.joins("b~1", at(10))
	n.leaves("b~1", at(30))
	n.joins("c", at(40))
	n.end("b~1", at(50), false) // a release has no cross
	v := timeWindow{at(0), at(60), 6}
	all, more := n.swimlanes(v)
	var got []string
	theme := themeNamed("dark", renderer(termenv.Ascii))
	for _, one := range all {
		l := widget.NewLine(v.w)
		widget.Blocks().Strip(l, widget.Style{}, v.w, one.draw(theme, widget.Blocks(), v, n.contended(v)))
		got = append(got, one.client+ansi.Strip(l.String()))
	}
	want := []string{"aA▓✗   ", "b ┄┄A▓ ", "c    ┄┄"}
	check.True(t, slices.Equal(got, want) && more == 0, "the swimlanes are %q, want %q", got, want)
	for i := range swimlanesShown {
		n.joins(string(rune('d'+i)), at(59))
	}
	n.begin(timelineHold{holder: "z~1", name: "z", from: after(59_900 * time.Millisecond)})
	all, more = n.swimlanes(v)
	check.True(t, len(all) == swimlanesShown && more == 4 && all[0].client == "z", "%d swimlanes, and %d more", len(all), more)
}

// A waiter that is not there any more has left, and a lane that has discarded old waits knows only the
// time since.
func TestALaneKnowsTheWaitsOfNamedClients(t *testing.T) {
	n := &lane{}
	l := mutex("a", "x", time.Hour)
	const turns, each = 3 * maxHolds, 10 * time.Millisecond
	for i := range turns {
		l.Waiters = []keyspace.Waiter{{ID: "w"}}
		n.observe(&l, after(time.Duration(2*i)*each))
		l.Waiters = nil
		n.observe(&l, after(time.Duration(2*i+1)*each))
	}
	end := after(2 * turns * each)
	p := n.past(timeWindow{from: midnight, to: end})
	most := 2 * (2*maxHolds + 1) * each
	check.True(t, n.waiters() == 0 && p.Period <= most && p.PerSecond() >= 0.49 && p.PerSecond() <= 0.51,
		"%d wait, and %.2f in %v on average", n.waiters(), p.PerSecond(), p.Period)
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
	for step := range 600 {
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
		a.timeline.apply([]loadgen.Event{{At: now.At, Kind: kind, Client: client, Key: fmt.Sprint("order:0000", random.IntN(9)), Token: "t"}}, false, false)
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
		want.most, want.figures = a.mostBlocked()
		recent := a.recent(&p.filter)
		sumOneByOne(&want, a, recent)
		waited += len(want.figures.Rung)
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
		sums[name].Add(a.lastMinuteOf(l.ID()))
	}
	for _, l := range a.current().locks {
		if a.locks().filter.lock(l, a.current().snap.At, "") {
			add(l)
		}
	}
	for _, l := range gone {
		add(l)
	}
	w.classes = make(map[keyspace.ID]*contention.Class)
	for name, sum := range sums {
		class := sum.Class(0, name)
		w.classes[keyspace.ID{Key: name}] = &class
	}
}

// textOf returns the figures of the waiting, in the order of the classes.
func textOf(w waiting) string {
	lines := []string{fmt.Sprintf("%q: most %v %+v", w.filter, w.most, w.figures)}
	for _, c := range w.classes {
		lines = append(lines, fmt.Sprintf("%+v", *c))
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}
