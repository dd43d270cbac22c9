package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/loadgen"
)

// addEvents makes events of a load's clients, 100 ms apart if they have no times.
func (g *fakeLoad) addEvents(events ...loadgen.Event) {
	for _, e := range events {
		e.Seq = uint64(len(g.events) + 1)
		if e.At.IsZero() {
			e.At = after(time.Duration(e.Seq) * 100 * time.Millisecond)
		}
		g.events = append(g.events, e)
	}
}

func acquired(client int, key string, fence int64) loadgen.Event {
	return loadgen.Event{Kind: loadgen.Acquired, Client: client, Key: key, Token: fmt.Sprint(client, key), Fence: fence}
}

// on returns an event of a client about its hold of a key.
func on(kind loadgen.EventKind, client int, key string, fence int64) loadgen.Event {
	e := acquired(client, key, fence)
	e.Kind = kind
	if kind == loadgen.FencedWrite {
		e.Text = string(loadgen.Freeze)
	}
	return e
}

func fault(kind loadgen.EventKind, what loadgen.FaultKind, client int, text string) loadgen.Event {
	return loadgen.Event{Kind: kind, Fault: what, Client: client, Text: text}
}

func TestTheFaultLogKnowsEachHolderOfASemaphore(t *testing.T) {
	var l faultLog
	l.apply([]loadgen.Event{acquired(1, "load:1", 0), acquired(2, "load:1", 0), fault(loadgen.FaultBegan, loadgen.Leak, 1, ""), on(loadgen.Abandoned, 1, "load:1", 0)},
		true, loadgen.Lock{Kind: loadgen.Semaphore, Permits: 2}, 0)
	check.True(t, slices.ContainsFunc(l.lines, func(e logEntry) bool { return strings.Contains(e.text, "client-1 forgets its permit of load:1") }), "%+v", l.lines)
}

// played returns a Config whose load has events to narrate.
func played() (Config, *fakeLoad) {
	w, g := loadConfig()
	return redlockConfig(w), g
}

func TestTheFaultLog(t *testing.T) {
	for name, play := range map[string]func(d *driver, g *fakeLoad){
		"the fault log describes a crash up to the next holder": func(d *driver, g *fakeLoad) {
			d.wantNot("what happened")
			g.addEvents(acquired(5, "load:1", 0), fault(loadgen.FaultBegan, loadgen.Crash, 5, ""), on(loadgen.Abandoned, 5, "load:1", 0))
			d.wait(tickInterval).want("client-5 dies without releasing load:1")
			g.addEvents(acquired(9, "load:1", 0))
			d.wait(tickInterval).want("the lease of client-5 on load:1 has run out: client-9 acquires it, 100 ms after the crash")
		},
		"the fault log describes a freeze up to the fence": func(d *driver, g *fakeLoad) {
			g.addEvents(acquired(2, "load:1", 20), fault(loadgen.FaultBegan, loadgen.Freeze, 2, ""), acquired(1, "load:1", 21),
				fault(loadgen.FaultEnded, loadgen.Freeze, 2, ""), on(loadgen.FencedWrite, 2, "load:1", 20), on(loadgen.Expired, 2, "load:1", 20))
			d.wait(tickInterval).wantOrder("client-2 wakes and writes to load:1: refused, its fencing number 20 is older",
				"client-2 still believes it has load:1", "client-1 acquires it as well, with fencing number 21 after", "client-2 freezes while holding load:1")
			g.addEvents(on(loadgen.WriteAccepted, 3, "load:2", 0))
			d.wait(tickInterval).want("client-3 works past its lease and writes to load:2", "no fencing check")
		},
		"a client that is cut off from one server, of this process and of an agent": func(d *driver, g *fakeLoad) {
			ofAgent := fault(loadgen.FaultBegan, loadgen.Partition, 300_002, "node 3")
			ofAgent.Key = "load:2"
			g.addEvents(acquired(1, "load:1", 1), fault(loadgen.FaultBegan, loadgen.Partition, 1, "node 2"), ofAgent)
			d.wait(tickInterval).want("client-1 is cut off from node 2 while holding load:1", "client-300002 is cut off from node 3 while holding load:2").wantNot("no longer renewed")
		},
		"a release in time is not in the fault log": func(d *driver, g *fakeLoad) {
			g.addEvents(acquired(2, "load:1", 1), on(loadgen.Released, 2, "load:1", 1), fault(loadgen.FaultBegan, loadgen.Freeze, 2, ""), acquired(3, "load:1", 2))
			d.wait(tickInterval).wantNot("what happened")
		},
		"the fault log reports the loss of the majority": func(d *driver, g *fakeLoad) {
			down := func(n int) loadgen.Event {
				return fault(loadgen.FaultBegan, loadgen.NodeDown, 0, fmt.Sprintf("node %d", n))
			}
			g.addEvents(down(1), down(4))
			d.wait(tickInterval).want("node 4 goes down: 3 of 5 nodes up (majority: 3)")
			g.addEvents(down(2))
			d.wait(tickInterval).want("node 2 goes down: 2 of 5 nodes up (majority: 3): no lock can be acquired until 3 respond")
			g.addEvents(fault(loadgen.FaultEnded, loadgen.NodeDown, 0, "node 1"))
			d.wait(tickInterval).want("node 1 is back: 3 of 5 nodes up")
		},
		// Checks that frequent events do not push their
		// cause, a fault, out of the visible lines.
		"the fault log combines repetitions": func(d *driver, g *fakeLoad) {
			g.addEvents(acquired(1, "load:1", 0), fault(loadgen.FaultBegan, loadgen.Freeze, 1, ""))
			for range 200 {
				e := on(loadgen.WorkOverlapped, 2, "load:1", 0)
				e.Took = 50 * time.Millisecond
				g.addEvents(e)
			}
			d.wait(tickInterval).want("two clients work on load:1 at the same time, 200 times, up to 50 ms", "client-1 freezes while holding load:1")
			check.Equal(d.t, len(d.app.run.faultLog.lines), 2, "lines of the fault log")
			g.addEvents(acquired(3, "load:1", 0), fault(loadgen.FaultBegan, loadgen.Freeze, 3, ""), on(loadgen.WorkOverlapped, 4, "load:1", 0))
			d.wait(tickInterval).wantOrder("two clients work on load:1 at the same time, for", "client-3 freezes while holding load:1", "200 times")
		},
		"an overlap names both clients": func(d *driver, g *fakeLoad) {
			e := on(loadgen.Overlapped, 2, "load:1", 0)
			e.Took = 60 * time.Millisecond
			g.addEvents(acquired(1, "load:1", 0), acquired(2, "load:1", 0), e)
			d.wait(tickInterval).want("client-1 and client-2 held load:1 at the same time, for 60 ms")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, g := played()
			drive(t, w, func(d *driver) { play(d.size(170, 40).press("3"), g) })
		})
	}
}
