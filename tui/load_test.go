package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/scenarios"
	"locktop/tui/widget"
)

func TestStepsGrowWithTheNumberOfClients(t *testing.T) {
	for n, want := range map[int]int{0: 1, 1: 2, 9: 10, 10: 20, 100: 200, 1000: 2000, 10_000: 20_000, 100_000: 100_000} {
		check.Equal(t, step(n, 1), want, "more than %d is", n)
	}
	for n, want := range map[int]int{1: 1, 2: 1, 10: 9, 20: 10, 25: 20, 100: 90, 200: 100, 250: 200, 10_000: 9000} {
		check.Equal(t, step(n, -1), want, "fewer than %d is", n)
	}
}

// failingLoad is a load that refuses a lock of kind fair.
type failingLoad struct{ *fakeLoad }

// refusedLock is why a failingLoad refuses a lock.
const refusedLock = `start the load: lock fair: the server answers to a command that only its newest versions know: ERR unknown command 'WAITER', with args beginning with: 'load:1' 'client-17'`

func (l failingLoad) Apply(s loadgen.Scenario) error {
	if s.Lock.Kind == loadgen.Fair {
		return errors.New(refusedLock)
	}
	return l.fakeLoad.Apply(s)
}

func TestALoadThatCannotStartSaysWhy(t *testing.T) {
	w, g := testConfig(), runningLoad()
	w.Load, w.Scenes = &fakeLoad{fails: errors.New("start 20 clients: \x1b[31mOOM")}, []loadgen.Scenario{{Name: "queue", Lock: loadgen.Lock{Kind: loadgen.Fair}}}
	drive(t, w, func(d *driver) { d.press("3", "s").want(`start 20 clients: \x1b[31mOOM`) })
	w.Load = failingLoad{g}
	drive(t, w, func(d *driver) { // the reason stays, up to its end, until the next change
		d.size(80, 24).press("3", "n").wait(20 * tickInterval)
		check.True(t, strings.Contains(screenWords(d), refusedLock) && g.Metrics().Running,
			"the reason is cut, or the load before has ended:\n%s", d.screen())
		d.press("p").wantNot("client-17").press("p", "+").wantNot("WAITER")
	})
}

// What has changed while another page was open is on the page. A run with late work is not harmless.
func TestTheLoadPageShowsTheMetrics(t *testing.T) {
	w, g := loadConfig()
	drive(t, w, func(d *driver) {
		g.change(func(m *loadgen.Metrics) { m.Acquired, m.Violations.LateWork.Count = 777_777, 7 })
		d.wait(tickInterval).press("3").want("777,777", "0 overlaps, but clients worked past their deadline 7 times").wantNot("mutual exclusion held")
		g.setClients(10_000)
		d.wait(2 * tickInterval).want("more ──")
	})
	idle := &fakeLoad{}
	idle.setClients(1)
	w.Load = idle
	drive(t, w, func(d *driver) {
		idle.run(true)
		d.wait(2 * tickInterval).press("3").want("no client has got a lock yet")
		idle.run(false)
		d.wait(2 * tickInterval).want("nothing has run yet").wantNot("mutual exclusion held").press("-").want("already at the limit: clients is 1")
	})
}

// slowLoad is a load that changes slowly.
type slowLoad struct{ *fakeLoad }

func (l slowLoad) Apply(s loadgen.Scenario) error {
	time.Sleep(3 * tickInterval)
	return l.fakeLoad.Apply(s)
}

func (l slowLoad) Metrics() loadgen.Metrics {
	m := l.fakeLoad.Metrics()
	time.Sleep(tickInterval / 2) // out of date when it arrives
	return m
}

func TestKeysPressedInARowAddUp(t *testing.T) {
	w, g := loadConfig()
	w.Load = slowLoad{g}
	drive(t, w, func(d *driver) {
		d.wait(time.Second).press("3", "+").want("30 clients").wait(tickInterval / 5).press("+").want("40 clients")
		for range 20 { // the screen never accepts an older number
			d.wait(tickInterval / 3).want("40 clients")
		}
		check.Equal(t, g.Scenario().Clients, 40, "clients that the load was left with")
		d.press("-").wait(5 * time.Second).want("30 clients")
	})
}

// A scene that is chosen right after a change of a setting starts a load that has stopped.
func TestASceneStartsDuringAChange(t *testing.T) {
	g := runningLoad()
	f := loadState{load: g, scenes: []loadgen.Scenario{loadgen.Scenario{Name: "freeze"}.WithDefaults()}}
	check.NoError(t, g.Stop())
	f.request(loadgen.Scenario{Clients: 30}, false)()
	check.Require(t, f.startScene(0) == nil, "two changes at a time")
	f.applied()()
	check.True(t, g.Metrics().Running && g.Scenario().Name == "freeze",
		"running is %v with %q, want the scene", g.Metrics().Running, g.Scenario().Name)
	check.True(t, f.applied() == nil && !f.starting, "the start is repeated")
}

// toField selects a field of the form.
func (d *driver) toField(name string) *driver {
	d.t.Helper()
	for range 2 * len(allFormFields()) {
		if strings.HasPrefix(d.line("▌"), "▌"+name+" ") {
			return d
		}
		d.press("j")
	}
	d.t.Fatalf("the form has no field %q:\n%s", name, d.screen())
	return d
}

// A rate hides the think time, which is above it.
func TestTheCursorStaysOnItsField(t *testing.T) {
	w, g := played()
	drive(t, w, func(d *driver) {
		d.press("3", "enter").enter("reentrant").press("enter").want("entries     3").wantNot("reads ")
		d.press("enter").enter("rw").press("enter").want("reads       80%")
		d.press("enter").enter("mutex").press("enter").toField("rate").press("right", "right", "right").want("▌rate ")
		check.True(d.t, g.s.Rate == 50 && g.s.Conns == 100, "rate %g, %d connections", g.s.Rate, g.s.Conns)
	})
}

func TestEveryFieldOfTheFormCanBeSteppedAndTyped(t *testing.T) {
	typed := map[string]string{
		"lock": "fair", "clients": "7", "keys": "9", "lease": "3s", "renewal": "off", "waiting": "50ms", "fence": "on", "entries": "5", "renew limit": "4", "key choice": "zipf", "arrivals": "poisson",
		"hold": "uniform:10ms,20ms", "think": "5ms", "reads": "40%", "wait limit": "2s", "rate": "50/s", "connections": "7", "permits": "4", "per hold": "3",
	}
	for _, k := range allFormFields() {
		t.Run(k.name, func(t *testing.T) {
			w, g := loadConfig()
			if kind := map[string]loadgen.Kind{"reads": loadgen.RW, "permits": loadgen.Semaphore, "per hold": loadgen.All, "entries": loadgen.Reentrant, "arrivals": loadgen.Mutex}[k.name]; kind != "" {
				s := loadgen.Scenario{Lock: loadgen.Lock{Kind: kind}}.WithDefaults()
				s.Rate = map[string]float64{"arrivals": 10}[k.name]
				g.s, g.clients = &s, 20
			}
			drive(t, w, func(d *driver) {
				d.wait(tickInterval).press("3")
				d.toField(k.name)
				was := k.value(g.Scenario())
				d.press("right")
				check.True(t, k.value(g.Scenario()) != was || k.name == "wait limit", "→ left it at %s", was)
				d.press("left")
				d.press("enter").enter(typed[k.name]).press("enter").wait(2 * tickInterval)
				check.True(t, k.value(g.Scenario()) != was || k.name == "renewal", "typing %q left it at %s", typed[k.name], was)
				d.press("enter").enter("nonsense").press("enter")
				check.True(t, g.Scenario().Validate() == nil, "nonsense was taken: %+v", g.Scenario())
			})
		})
	}
}

func TestTheFormRefusesAValueInWords(t *testing.T) {
	permits := loadgen.Scenario{Lock: loadgen.Lock{Kind: loadgen.Semaphore}}.WithDefaults()
	several := loadgen.Scenario{Lock: loadgen.Lock{Kind: loadgen.All}, Keys: loadgen.Keys{N: 5}}.WithDefaults()
	readers := loadgen.Scenario{Lock: loadgen.Lock{Kind: loadgen.RW}}.WithDefaults()
	for _, c := range []struct {
		field, typed, want string
		of                 *loadgen.Scenario
	}{
		{"lock", "spin", "lock: kind must be one of mutex reentrant rw", nil},
		{"clients", "abc", `clients: "abc" is not a whole number`, nil},
		{"clients", "0", "clients: 0 is too few; write at least 1", nil},
		{"clients", "-5", "clients: -5 is too few", nil},
		{"keys", "0", "keys: 0 is too few", nil},
		{"permits", "0", "permits: 0 is too few", &permits},
		{"per hold", "0", "per hold: 0 is too few", &several},
		{"per hold", "101", "per hold must be 1 to 100, not 101", &several},
		{"lease", "5", `lease: "5" is not a time like 500ms or 2m`, nil},
		{"lease", "0s", "lease: 0s is too short", nil},
		{"lease", "25h", "lease must be 10ms to 24h in whole milliseconds, not 25h", nil},
		{"renewal", "yes", `renewal: "yes" is neither on nor off`, nil},
		{"waiting", "25h", "waiting must be 0 to 24h, not 25h", nil},
		{"rate", "fast", `rate: "fast" is not a rate like 500/s or 30/m`, nil},
		{"connections", "0", "connections: 0 is too few", nil},
		{"connections", "1001", "connections must be 1 to 1000, not 1001", nil},
		{"reads", "all", `reads: "all" is not a share like 80% or 0.8`, &readers},
		{"wait limit", "-1s", "wait limit must be 0 to 24h, not -1s", nil},
		{"wait limit", "none", "wait limit is none already", nil},
		{"connections", "100", "connections is at most 100 already", nil},
	} {
		w, g := testConfig(), runningLoad()
		w.Load, g.s = g, c.of
		drive(t, w, func(d *driver) {
			d.wait(tickInterval).press("3")
			d.toField(c.field).press("enter").enter(c.typed).press("enter").want(c.want)
			check.True(t, g.s == c.of, "%s %s changed the scenario to %+v", c.field, c.typed, g.s)
		})
	}
}

func TestTheMenuOfTheDemoStartsScenes(t *testing.T) {
	w, _ := loadConfig()
	for _, name := range []string{"hot-key", "freeze", "crash"} {
		s := loadgen.Scenario{Name: name, Caption: "All about " + name + ".", Watch: "see " + name}.WithDefaults()
		w.Scenes = append(w.Scenes, s)
	}
	drive(t, w, func(d *driver) {
		d.press("m").want("Choose a scene", "All about freeze").press("c").wait(tickInterval).want("All about freeze.", "scene 2 of 3")
		d.press("n").wait(tickInterval).want("All about crash.", "scene 3 of 3").press("n").wait(tickInterval).want("scene 1 of 3").press("b", "b").wait(2 * tickInterval).want("scene 2 of 3")
	})
	drive(t, w, func(d *driver) { d.press("m", "m").want("Choose a scene").press("esc", "3", "n").want("scene 1 of 3") })
}

// The traffic is the first thing on the screen, and its last line names the key of the menu.
func TestAScreenWithScenesBeginsWithoutTheirMenu(t *testing.T) {
	w := testConfig()
	w.Scenes = scenes()
	drive(t, w, func(d *driver) {
		d.size(80, 24).wait(10*time.Second).want("job:nightly", "m shows 19 scenes").wantNot("Choose a scene")
		d.press("j").wantNot("m shows 19 scenes").want("m scenes").press("m").want("Choose a scene").press("esc").wantNot("Choose a scene")
	})
	drive(t, w, func(d *driver) {
		l := keyspace.Lock{Key: "load:1"}
		d.app.tellExpiry([]keyspace.Event{{Kind: keyspace.Expired, Lock: l, Holder: keyspace.Holder{ID: "a"}}, {Kind: keyspace.Acquired, Lock: keyspace.Lock{Key: "load:2"}}})
		d.app.tellExpiry([]keyspace.Event{{Kind: keyspace.Acquired, Lock: l, Holder: keyspace.Holder{ID: "b"}}})
		d.want("The lease of a on load:1 expired; b has it now.").wait(5 * time.Second).want("m scenes")
	})
	w.Load = nil
	drive(t, w, func(d *driver) { d.wantNot("m shows", "m scenes").press("m").want("no load here") })
}

// A digit opens its page also while a menu or a question is open. The menu of scenes does not use the keys that it
// names for something else.
func TestADigitLeavesEveryDialog(t *testing.T) {
	w, executor := writeConfig()
	g := runningLoad()
	w.Load, w.Scenes = g, scenarios.All()
	for _, open := range [][]string{{"m"}, {"3", "f"}, {"y"}, {"x"}, {"x", "d"}, {"?"}, {"ctrl+s"}} {
		drive(t, w, func(d *driver) {
			d.press(open...)
			check.Require(t, d.app.dialog != nil, "%v opens no dialog:\n%s", open, d.screen())
			for digit, at := range map[string]pageSet{"2": onTimeline, "4": onNodes, "1": onLocks} {
				d.press("1").press(open...).press(digit)
				check.True(t, d.app.dialog == nil && d.app.place() == at,
					"%v and %s lead to %v with a dialog: %v", open, digit, d.app.place(), d.app.dialog != nil)
			}
		})
	}
	check.True(t, len(executor.done) == 0 && len(g.injected) == 0, "a digit changed locks %v, or injected %v", executor.done, g.injected)
	drive(t, w, func(d *driver) {
		d.press("/").enter("2").want("/2").press("esc", "m")
		for _, key := range []string{"n", "b", "f", "1"} {
			d.press(key).wait(tickInterval)
			check.True(t, g.Scenario().Name == "hot-key", "%s in the menu started %s", key, g.Scenario().Name)
		}
	})
}

// overlapped returns a load whose clients have overlapped so many times on a key, for 100 ms each, one second apart. The
// server's clock differs from theirs.
func overlapped(times int) (Config, *fakeLoad) {
	w, g := loadConfig()
	w.Source.(*fakeServer).ahead = time.Hour
	for i := range times {
		at := after(time.Duration(i)*time.Second + 100*time.Millisecond)
		g.addEvents([]loadgen.Event{
			{At: at, Kind: loadgen.Acquired, Key: "load:1", Client: 1, Token: "a"},
			{At: at, Kind: loadgen.Acquired, Key: "load:1", Client: 2, Token: "a"},
			{At: at, Kind: loadgen.EventKind(oracle.Overlap), Key: "load:1", Took: 100 * time.Millisecond, Client: 2, Token: "a"},
			{At: at.Add(100 * time.Millisecond), Kind: loadgen.Released, Key: "load:1", Client: 1, Token: "a"},
			{At: at.Add(100 * time.Millisecond), Kind: loadgen.Released, Key: "load:1", Client: 2, Token: "a"},
		}...)
	}
	return w, g
}

// The letters of holds in the same cell do not hide an overlap that is shorter than a cell. Clients of historic forms have
// the same token, but holds of their own. The first jump goes to the last visible violation, and each further jump to the
// one before.
func TestOverlapsAreVisibleAtAnyZoomAndOneByOne(t *testing.T) {
	w, _ := overlapped(3)
	drive(t, w, func(d *driver) {
		d.wait(3 * time.Second).press("2")
		p := d.app.pages[1].(*timelinePage)
		for p.chosen.Key != "load:1" {
			d.press("j")
		}
		d.want("client-1 100 ms", "client-2 100 ms", "selected lane: exact, of the load's own clients")
		for _, key := range []string{"+", "-", "-", "-", "-"} {
			d.wantLine("load:1 ", "!").press(key)
		}
		d.wantLine("load:1 ", "!").press("+", "+", "+")
		for _, want := range []int{2, 1, 0} {
			d.press("[").want("two clients held it at the same time for 100 ms")
			check.Equal(t, p.jumped.Sub(midnight).Truncate(time.Second), time.Duration(want)*time.Second, "[ led to the overlap at")
		}
		d.press("[").want("no violation before this time").press("]")
		check.Equal(t, p.jumped.Sub(midnight).Truncate(time.Second), time.Second, "] led to the overlap at")
	})
}

func TestTheFooterOmitsKeysWithoutATarget(t *testing.T) {
	drive(t, testConfig(), func(d *driver) { d.size(200, 30).want("y copy").wantNot("x act") }) // this screen only reads
	plain, _ := writeConfig()
	drive(t, plain, func(d *driver) {
		d.size(200, 30).want("y copy", "x act").size(120, 35).press("4").wantNot("d down", "e empty")
		d.press("3").want("Enter type", "s start/stop").wantNot("Enter open")
	})
	drive(t, redlockConfig(plain), func(d *driver) { d.size(120, 35).press("4").want("d down", "e empty") })
	plain.Load = nil
	drive(t, plain, func(d *driver) { d.press("3").wantNot("s start/stop", "f fault") })
}

// A second of a run of 10 s has several columns, with a mark where a fault began.
func TestAShortRunFillsTheChart(t *testing.T) {
	w, g := played()
	s := g.Scenario()
	s.Duration = 10 * time.Second
	g.s = &s
	g.m.Began, g.m.Elapsed, g.m.Seconds = midnight, 10*time.Second, make([]loadgen.Second, 11)
	for i := range g.m.Seconds {
		g.m.Seconds[i].Acquired = 100
	}
	drive(t, w, func(d *driver) {
		g.addEvents(loadgen.Event{At: after(5 * time.Second), Kind: loadgen.FaultBegan, Fault: loadgen.Crash, Client: 3})
		d.size(120, 40).press("3").wait(2 * tickInterval)
		chart := d.line("acquired per second")
		left := strings.Index(d.screen(), chart)
		bars := strings.Split(d.screen()[left:], "\n")[2]
		n := strings.Count(bars, "█")
		check.True(t, n == 40, "ten seconds have %d columns, want 40: %s", n, bars)
		foot := d.line("s ago")
		check.True(t, strings.Contains(foot, "10 s ago") && !strings.Contains(foot, "0 10"), "the axis reads %q", foot)
		at := len([]rune(foot[:strings.Index(foot, "▲")]))
		check.True(t, at >= 96 && at <= 100, "the fault is marked in column %d, want the middle of 78 … 118: %s", at, foot)
	})
}

func TestALoadOnTheUsersServerNeedsConfirmation(t *testing.T) {
	w := testConfig()
	w.Load, w.Loader = nil, func(context.Context) (Load, error) { return &fakeLoad{}, nil }
	drive(t, w, func(d *driver) {
		d.size(140, 35).press("3").want("s runs clients on it").press("+").want("s on the Load page starts some")
		d.press("s").want("Run clients on this server?").press("enter").want("s runs clients on it").wantNot("LOAD")
		d.press("s", "y").wait(tickInterval).want("settings", "READ-ONLY + LOAD", "running")
	})
	w.Loader = func(context.Context) (Load, error) { return nil, errors.New("10.0.0.7 is not on this machine") }
	drive(t, w, func(d *driver) { d.press("3", "s", "y").want("is not on this machine", "There is no load") })
}

// After a run of a historic form its key stays, with a token that is the same for all clients.
func TestAStoredTokenIsNoHolder(t *testing.T) {
	w, g := played()
	s := g.Scenario()
	s.Lock, s.Keys.Prefix = loadgen.Lock{Kind: "classic/blind-delete"}, "load:"
	g.s = &s
	w.Source.(*fakeServer).locks = append(w.Source.(*fakeServer).locks, mutex("load:1", "permits", time.Minute))
	drive(t, w, func(d *driver) {
		held := acquired(5, "load:1", 0)
		g.addEvents(held)
		d.wait(2 * tickInterval).press("3").want("load:1 held by client-5")
		held.Kind = loadgen.Released
		g.addEvents(held)
		d.wait(2 * tickInterval).want("load:1 free").wantNot("permits")
	})
}

func TestTheLoadOfTheScreen(t *testing.T) {
	for name, play := range map[string]func(d *driver, g *fakeLoad){
		"a fault hits the chosen client": func(d *driver, g *fakeLoad) {
			d.press("3", "f").want("Target: a client at random", "three leases").press("z").want("fault injected: freeze")
			d.press("l", "l", "l", "h").want("client-2 is").press("f").want("Target: client-2").press("c").want("fault injected: crash")
			if got := g.injected; len(got) != 2 || got[0].Kind != loadgen.Freeze || got[0].Client != 0 || got[1].Kind != loadgen.Crash || got[1].Client != 2 {
				d.t.Errorf("struck: %+v", got)
			}
			d.press("f").wantNot("node-down", "node-restart-empty", "skew").press("esc")
			g.nodes = 3
			d.press("enter").enter("redlock").press("enter").want("lock: redlock").press("f").wantNot("node-down", "skew").press("esc")
			g.nodes = 1
			d.press("enter").enter("mutex").press("enter", "enter").enter("redlock").press("enter").want("needs independent servers")
			d.press("s").wait(tickInterval).press("f").want("the clients are not running").wantNot("Inject a fault")
		},
		// A crash has no end of its own.
		"a fault of an earlier run does not mark the next": func(d *driver, g *fakeLoad) {
			g.addEvents(acquired(5, "load:1", 0), fault(loadgen.FaultBegan, loadgen.Crash, 5, ""))
			d.wait(20*time.Second).press("2").want("▲crash", "░ fault")
			g.mu.Lock()
			g.events, g.m.Began = nil, time.Now()
			g.mu.Unlock()
			d.wait(tickInterval)
			x := d.app.run.faults[0]
			check.False(d.t, x.to.IsZero(), "the crash of the run before goes on: %+v", x)
			d.size(40, 6).wait(historyKept + time.Minute) // few cells to draw
			g.change(func(m *loadgen.Metrics) { m.Running, m.Elapsed = false, time.Since(m.Began) })
			d.wait(tickInterval)
			check.Equal(d.t, len(d.app.run.faults), 0, "faults that are kept and no timeline reaches")
		},
		"overlaps are an alarm in words": func(d *driver, g *fakeLoad) {
			d.press("3").want("✓ 0 overlaps: mutual exclusion held", "✓ no overlaps")
			g.change(func(m *loadgen.Metrics) {
				m.Violations.Overlap.Count, m.Violations.Overlap.Longest = 3, 12*time.Millisecond
			})
			d.wait(2*tickInterval).want("▲ 3 OVERLAPS, longest 12 ms").wantNot("the lock held", "no overlaps")
			check.True(d.t, strings.Contains(d.app.View(), "\x1b[1;7;31m ▲ 3 OVERLAPS"), "overlaps are not drawn as an alarm")
			g.change(func(m *loadgen.Metrics) { m.Violations.Overlap.Count = 1 })
			d.wait(2*tickInterval).want("1 OVERLAP,").size(50, 10).want("1 OVERLAP,")
		},
		"nodes of the demo can be taken down": func(d *driver, g *fakeLoad) {
			d.press("4", "j", "j", "d").want("fault injected: node-down").press("e").want("fault injected: node-restart-empty")
			check.Require(d.t, len(g.injected) == 2, "struck: %+v", g.injected)
			down, empty := g.injected[0], g.injected[1]
			check.True(d.t, down.Kind == loadgen.NodeDown && down.Node == 3 && empty.Kind == loadgen.RestartEmpty,
				"struck: %+v", g.injected)
		},
		// The reason is the server's reply at the end of a long error.
		"a load error is shown completely": func(d *driver, g *fakeLoad) {
			g.change(func(m *loadgen.Metrics) {
				m.LastErr = "lock: acquire \"load:{1b8e3b0f}:1\": not enough servers answered in time: 2 of 5, and 3 are needed"
			})
			d.wait(2 * tickInterval)
			for _, size := range [][2]int{{80, 24}, {120, 35}} {
				d.size(size[0], size[1]).press("3")
				check.True(d.t, strings.Contains(screenWords(d), g.m.LastErr), "at %v the error is cut:\n%s", size, d.screen())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, g := played()
			drive(t, w, func(d *driver) { play(d, g) })
		})
	}
}

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
	if kind == loadgen.EventKind(oracle.StaleWriteRefused) {
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
				fault(loadgen.FaultEnded, loadgen.Freeze, 2, ""), on(loadgen.EventKind(oracle.StaleWriteRefused), 2, "load:1", 20), on(loadgen.Expired, 2, "load:1", 20))
			d.wait(tickInterval).wantOrder("client-2 freezes while holding load:1", "client-2 still believes it has load:1", "client-1 acquires it as well, with fencing token 21 after",
				"client-2 wakes and writes to load:1: refused, its fencing token 20 is older")
			g.addEvents(on(loadgen.EventKind(oracle.StaleWriteAccepted), 3, "load:2", 0))
			d.wait(tickInterval).want("client-3 works past its lease and writes to load:2", "no fencing check")
		},
		"a client that is cut off from one server, of this process and of an agent": func(d *driver, g *fakeLoad) {
			ofAgent := fault(loadgen.FaultBegan, loadgen.Partition, 300_002, "node 3")
			ofAgent.Key = "load:2"
			g.addEvents(acquired(1, "load:1", 1), fault(loadgen.FaultBegan, loadgen.Partition, 1, "node 2"), ofAgent)
			d.wait(tickInterval).want("client-1 is cut off from node 2 while holding load:1", "client-300002 is cut off from node 3 while holding load:2").wantNot("not renew")
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
		// Checks that frequent events do not push their cause, a fault, out of the visible lines.
		"the fault log combines repetitions": func(d *driver, g *fakeLoad) {
			g.addEvents(acquired(1, "load:1", 0), fault(loadgen.FaultBegan, loadgen.Freeze, 1, ""))
			for range 200 {
				e := on(loadgen.EventKind(oracle.WorkOverlap), 2, "load:1", 0)
				e.Took = 50 * time.Millisecond
				g.addEvents(e)
			}
			d.wait(tickInterval).want("two clients work on load:1 at the same time, 200 times, up to 50 ms", "client-1 freezes while holding load:1")
			check.Equal(d.t, len(d.app.run.faultLog.lines), 2, "lines of the fault log")
			g.addEvents(acquired(3, "load:1", 0), fault(loadgen.FaultBegan, loadgen.Freeze, 3, ""), on(loadgen.EventKind(oracle.WorkOverlap), 4, "load:1", 0))
			d.wait(tickInterval).wantOrder("200 times", "client-3 freezes while holding load:1", "two clients work on load:1 at the same time, for")
		},
		"an overlap names both clients": func(d *driver, g *fakeLoad) {
			e := on(loadgen.EventKind(oracle.Overlap), 2, "load:1", 0)
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

// The votes that an attempt leaves behind are no holder, and neither is a client whose release has failed.
func TestAMinorityOfVotesHoldsNothing(t *testing.T) {
	w, g := played()
	g.m.Running = true
	drive(t, w, func(d *driver) {
		d.app.run.scenario.Lock.Kind = loadgen.Redlock
		found := &keyspace.Lock{Holders: []keyspace.Holder{{ID: "client-1~a", Label: "client-1"}}, Votes: []keyspace.Vote{{Token: "client-1~a"}, {Token: "client-1~a"}, {}, {}, {}}}
		l := widget.NewLine(80)
		d.app.keyState(l, &lane{Account: new(holds.Account)}, found)
		check.Contains(t, l.String(), "2 votes left over, 3 needed")
		check.False(t, strings.Contains(l.String(), "held by"), "%s", l.String())
		g.addEvents(acquired(1, "load:1", 0))
		check.Equal(t, d.wait(tickInterval).app.timeline.lane(ofLoad("load:1"), nil, d.app.now).holder(), "client-1", "the holder is")
		g.addEvents(on(loadgen.Failed, 1, "load:1", 0))
		check.Equal(t, d.wait(tickInterval).app.timeline.lane(ofLoad("load:1"), nil, d.app.now).holder(), "", "after a failed release the holder is")
	})
}

// Each kind of violation has its word among the outcomes, its sentence in the verdict and in the
// fault log, and no place in a sentence stays open.
func TestEachViolationIsOnTheLoadPage(t *testing.T) {
	for _, k := range oracle.Kinds() {
		var s state
		s.run.metrics.Acquired = 1
		*k.Of(&s.run.metrics.Violations) = oracle.Tally{Count: 7}
		check.True(t, len(k.Word) <= 14 && slices.ContainsFunc(s.outcomes(), func(o outcome) bool { return o.name == k.Word && o.value == "7" }),
			"the word of %s is not among %+v", k.ID, s.outcomes())
		_, words := s.verdict()
		check.Equal(t, strings.Contains(words, k.Sentence(7, "two clients")) || k.ID == oracle.Overlap, k.Severity != oracle.Harmless, "%s: %s", k.ID, words)
		e := on(loadgen.EventKind(k.ID), 2, "load:1", 9)
		for _, events := range [][]loadgen.Event{{e}, {e, e}} {
			var l faultLog
			l.apply(events, true, loadgen.Lock{}, 0)
			check.True(t, len(l.lines) == 1 && !strings.Contains(l.lines[0].text, "{") || k.Once == "" && len(l.lines) == 0, "%s: %+v", k.ID, l.lines)
		}
	}
}

// The page says of an overlap what the verdict says.
func TestAnExpectationSaysThatAFaultExcusesAnOverlap(t *testing.T) {
	var s state
	s.run.scenario.Expect = []loadgen.Threshold{check.Must(loadgen.ParseThreshold("overlap.count == 0"))(t)}
	for excused, want := range map[int64]string{0: "overlap 2 (expected == 0)", 1: "overlap 2 (expected == 0)", 2: "overlap 2, excused by a fault (expected == 0)"} {
		o := &s.run.metrics.Violations.Overlap
		o.Count, o.Excused = 2, excused
		check.Equal(t, strings.TrimSpace(s.expectations()[0].text), want, "%d of 2 excused: the expectation", excused)
	}
}
