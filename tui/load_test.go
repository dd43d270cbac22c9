package tui

import (
	"errors"
	"strings"
	"testing"
	"time"

	"locktop/loadgen"
)

func TestOverlapsAreSaidInWordsAndSeenFromAfar(t *testing.T) {
	g := busy()
	w := world()
	w.Load = g
	drive(t, w, func(d *driver) {
		d.press("3").want("✓ 0 overlaps: the lock held", "✓ no overlaps")
		g.mu.Lock()
		g.m.Overlap = loadgen.Overlap{Count: 3, Longest: 12 * time.Millisecond}
		g.mu.Unlock()
		d.wait(2*beat).want("▲ 3 OVERLAPS, longest 12 ms").wantNot("the lock held", "no overlaps")
		if !strings.Contains(d.app.View(), "\x1b[0;1;37;41m ▲ 3 OVERLAPS") {
			t.Error("overlaps are not drawn as an alarm")
		}
		g.mu.Lock()
		g.m.Overlap.Count = 1
		g.mu.Unlock()
		d.wait(2 * beat).want("1 OVERLAP,")
		d.size(50, 10).want("1 OVERLAP,")
	})
}

func TestAVerdictNeedsARun(t *testing.T) {
	w := world()
	w.Load = &generator{}
	drive(t, w, func(d *driver) { d.press("3").want("nothing has run yet").wantNot("the lock held") })
}

// TestTheSecondThatGoesOnIsNotDrawn: a second that has just begun would look
// like a collapse.
func TestTheSecondThatGoesOnIsNotDrawn(t *testing.T) {
	m := loadgen.Metrics{Running: true, Seconds: []loadgen.Second{{Acquired: 100}, {Acquired: 3}}}
	if got := rate(m); got != 100 {
		t.Errorf("rate is %d, want that of the last full second", got)
	}
	if got := rate(loadgen.Metrics{Running: true}); got != 0 {
		t.Errorf("rate is %d before the first second is over", got)
	}
}

func TestStepsGrowWithTheFleet(t *testing.T) {
	for n, want := range map[int]int{0: 1, 1: 2, 9: 10, 10: 20, 100: 200, 1000: 2000, 10_000: 10_000} {
		if got := step(n, 1); got != want {
			t.Errorf("more than %d is %d, want %d", n, got, want)
		}
	}
	for n, want := range map[int]int{1: 1, 2: 1, 10: 9, 20: 10, 25: 20, 100: 90, 200: 100, 250: 200, 10_000: 9000} {
		if got := step(n, -1); got != want {
			t.Errorf("fewer than %d is %d, want %d", n, got, want)
		}
	}
}

func TestClientsStayWithinTheirBounds(t *testing.T) {
	w := world()
	g := &generator{}
	g.SetClients(1)
	w.Load = g
	drive(t, w, func(d *driver) { d.press("3", "-").want("at least one client") })
}

// broken is a load whose server is gone.
type broken struct{ *generator }

func (broken) Start() error { return errors.New("start 20 clients: \x1b[31mOOM") }

func TestALoadThatCannotStartSaysWhy(t *testing.T) {
	w := world()
	w.Load = broken{&generator{}}
	drive(t, w, func(d *driver) { d.press("3", "s").want(`start 20 clients: \x1b[31mOOM`) })
}

func TestMoreClientsThanRoomAreCounted(t *testing.T) {
	g := busy()
	g.SetClients(10_000)
	w := world()
	w.Load = g
	drive(t, w, func(d *driver) { d.press("3").wait(beat).want("more ──") })
}

func TestTheMeasuringGoesOnWhileAnotherPageIsOpen(t *testing.T) {
	g := busy()
	w := world()
	w.Load = g
	drive(t, w, func(d *driver) {
		g.mu.Lock()
		g.m.Acquired = 777_777
		g.mu.Unlock()
		d.wait(beat).press("3").want("777,777")
	})
}

// slow is a load that takes its time to change.
type slow struct{ *generator }

func (l slow) SetClients(n int) {
	time.Sleep(3 * beat)
	l.generator.SetClients(n)
}

func (l slow) Metrics() loadgen.Metrics {
	m := l.generator.Metrics()
	time.Sleep(beat / 2) // old when it arrives
	return m
}

func TestKeysPressedInARowAddUp(t *testing.T) {
	w := world()
	g := busy()
	w.Load = slow{g}
	drive(t, w, func(d *driver) {
		d.wait(time.Second).press("3", "+").want("30 clients").wait(beat / 5).press("+").want("40 clients")
		for range 20 { // at no moment is an older number believed
			d.wait(beat / 3).want("40 clients")
		}
		if n := g.Scenario().Clients; n != 40 {
			t.Errorf("the load was left with %d clients", n)
		}
		d.press("-").wait(5 * time.Second).want("30 clients")
	})
}

func TestAMeasurementFromBeforeAChangeIsNotBelieved(t *testing.T) {
	f := fleet{load: busy()}
	old := f.measure()().(measuredMsg)
	f.resized(f.resize(30)().(resizedMsg).clients)
	f.measured(old)
	if f.scenario.Clients != 30 {
		t.Errorf("%d clients are wanted, after 30 were asked for", f.scenario.Clients)
	}
	f.measured(f.measure()().(measuredMsg))
	if f.scenario.Clients != 30 {
		t.Errorf("%d clients after a new measurement", f.scenario.Clients)
	}
}

func TestTheLoadIsAskedOneThingAtATime(t *testing.T) {
	f := fleet{load: busy()}
	if f.measure() == nil || f.measure() != nil {
		t.Error("not one measurement at a time")
	}
	if f.resize(30) == nil || f.resize(40) != nil {
		t.Error("not one change at a time")
	}
	if next := f.resized(30); next == nil || next().(resizedMsg).clients != 40 {
		t.Error("what was wanted meanwhile does not follow")
	}
}
