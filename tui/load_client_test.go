package tui

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/loadgen"
	"locktop/loadgen/scenarios"
)

// refusingLoad is a load that refuses client processes.
type refusingLoad struct {
	*fakeLoad
	err error
}

func (l refusingLoad) Apply(s loadgen.Scenario) error {
	if s.Lock.Exec != "" {
		return l.err
	}
	return l.fakeLoad.Apply(s)
}

func sceneNamed(t *testing.T, name string) loadgen.Scenario {
	t.Helper()
	s, found := scenarios.Find(name)
	if !found {
		t.Fatalf("no scene %s", name)
	}
	return s.WithDefaults()
}

func TestAClientOfTheUserRunsInTheCurrentScenario(t *testing.T) {
	w, g := testConfig(), runningLoad()
	w.Load = g
	scene := sceneNamed(t, "freeze")
	g.s, g.clients, g.m.Running = &scene, scene.Clients, false
	drive(t, w, func(d *driver) {
		d.press(":").enter("exec python3 'my client.py'").press("enter").want("client python3 'my client.py'", "client process")
		s := g.Scenario()
		if s.Lock.Exec != "python3 'my client.py'" || !g.Metrics().Running {
			t.Errorf("running is %t, the lock %+v", g.Metrics().Running, s.Lock)
		}
		if s.Name != scene.Name || s.Hold != scene.Hold || len(s.Faults) != len(scene.Faults) || s.Expect != nil {
			t.Errorf("the scenario is %+v", s)
		}
		g.mu.Lock()
		g.m.Library = "redis-py\x1b[31m 6.4.0"
		g.mu.Unlock()
		d.wait(2*tickInterval).want(`client redis-py\x1b[31m 6.4.0  python3 'my client.py'`).wantNot("notified", "fence  ", "connections")
		d.size(50, 10).want("0 overlaps").size(80, 24).want("client redis-py")
		d.press("p").wantNot("my client.py").press("p")

		d.press(":").enter("exec ./other").press("enter").wait(tickInterval).want("./other")
		d.press(":").enter("exec").press("enter").want("back to the locks of locktop").wantNot("client process", "./other")
		if s := g.Scenario(); s.Lock.Kind != loadgen.Mutex || len(s.Expect) != len(scene.Expect) {
			t.Errorf("the scenario before was %+v, and is now %+v", scene, s)
		}
		d.press(":").enter("exec").press("enter").want("exec: type the command of a client after it")
	})
}

// TestTheStartOfProcessesIsShown covers a start that takes as long as that of 200 processes: the
// figures are those of the run before.
func TestTheStartOfProcessesIsShown(t *testing.T) {
	w, g := testConfig(), runningLoad()
	w.Load = slowLoad{g}
	drive(t, w, func(d *driver) {
		d.wait(time.Second).press("3", ":").enter("exec ./mine").press("enter").want("○ starting", "client starting 20 of ./mine").wantNot("running")
		d.wait(2*time.Second).want("running", "client ./mine").wantNot("starting")
	})
}

func TestALongCommandIsVisibleAtTheCursor(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		d.size(80, 24).press(":").enter("exec python3 " + strings.Repeat("a long path to/", 6) + "client.py").want("to/client.py")
		d.press("home").want(":exec python3").press("end").want("to/client.py")
	})
}

func TestAnotherSceneOrKindEndsTheClientOfTheUser(t *testing.T) {
	w, g := testConfig(), runningLoad()
	w.Load, w.Scenes = g, []loadgen.Scenario{sceneNamed(t, "hot-key"), sceneNamed(t, "crash")}
	drive(t, w, func(d *driver) {
		d.press("m", "a", ":").enter("exec ./mine").press("enter").want("scene 1 of 2", "client ./mine")
		d.press("n").want("scene 2 of 2").wantNot("./mine")
		if l := g.Scenario().Lock; l.Exec != "" {
			t.Errorf("the scene runs with %s", l)
		}
		d.press(":").enter("exec ./mine").press("enter").want("client ./mine")
		for !strings.HasPrefix(d.line("▌"), "▌lock") {
			d.press("k")
		}
		d.press("right").wantNot("client ./mine")
		if l := g.Scenario().Lock; l.Kind != loadgen.Mutex || l.Exec != "" {
			t.Errorf("the next kind is %s", l)
		}
	})
}

// TestAClientThatDoesNotStartSaysWhy checks that the reason stays on the page, up to its end,
// which is the end of the client's stderr.
func TestAClientThatDoesNotStartSaysWhy(t *testing.T) {
	const why = `start the load: client "python3 mine.py --with many --arguments": it exited: exit status 1; its stderr ends with: Traceback (most recent call last): | import redis | ModuleNotFoundError: No module named 'redis'`
	w, g := testConfig(), runningLoad()
	w.Load = refusingLoad{g, errors.New(why)}
	drive(t, w, func(d *driver) {
		d.size(80, 24).press("3", ":").enter("exec python3 mine.py").press("enter").wait(20 * tickInterval)
		if !strings.Contains(screenWords(d), why) {
			t.Errorf("the reason is cut:\n%s", d.screen())
		}
		if !g.Metrics().Running || d.app.run.scenario.Lock.Exec != "" {
			t.Error("the load before has ended")
		}
		d.press("p").wantNot("mine.py").press("p", "+").wantNot("Traceback")
	})
	w.Load = failingLoad{g}
	drive(t, w, func(d *driver) {
		d.press("3", "s").wait(2 * tickInterval).press("s").wait(20 * tickInterval).want("start 20 clients:")
	})
}

func TestAClientIsRefusedWhereItCannotRun(t *testing.T) {
	quorum, crowd := sceneNamed(t, "redlock-minority"), sceneNamed(t, "herd")
	crowd.Clients = 2000
	for _, c := range []struct {
		s    *loadgen.Scenario
		want string
	}{
		{&quorum, "this scenario needs several; m chooses another one"},
		{&crowd, "with exec each is a process; m chooses another scene"},
		{nil, "no load here"},
	} {
		w, g := testConfig(), runningLoad()
		w.Load, g.s = g, c.s
		if c.s == nil {
			w.Load = nil
		}
		drive(t, w, func(d *driver) {
			d.size(140, 40).wait(tickInterval).press(":").enter("exec ./mine").press("enter").want("exec: ", c.want)
			if l := g.Scenario().Lock; l.Exec != "" {
				t.Errorf("%s runs", l)
			}
		})
	}
}

// TestOnlyATypedCommandStartsProcesses covers a recording, a paste, and an answer with Enter.
func TestOnlyATypedCommandStartsProcesses(t *testing.T) {
	w, g := testConfig(), runningLoad()
	w.Load = g
	drive(t, w, func(d *driver) {
		d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(":exec ./mine\n"), Paste: true})
		d.settle().wait(tickInterval)
		d.press(":")
		d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("exec ./mine\r\n"), Paste: true})
		d.settle().wait(tickInterval).press("esc").wait(tickInterval)
		if g.s != nil {
			t.Errorf("the paste runs %s", g.s.Lock)
		}
	})
	w.Player = &fakePlayer{}
	drive(t, w, func(d *driver) {
		d.press(":").enter("exec ./mine").press("enter").want("exec: a recording runs no clients")
		if g.s != nil {
			t.Errorf("the recording runs %s", g.s.Lock)
		}
	})
	w.Player = nil
	own := &fakeLoad{}
	w.Load, w.Loader = nil, &fakeLoader{load: own}
	drive(t, w, func(d *driver) {
		d.size(100, 30).press(":").enter("exec ./mine --fast").press("enter").want("Run clients on this server?", "Each client is a process: ./mine --fast.", "start 20 processes")
		d.press("enter").wantNot("Run clients").want("There is no load")
		if own.s != nil || own.m.Running {
			t.Error("Enter runs the command")
		}
		d.press(":").enter("exec ./mine --fast").press("enter", "y").wait(2*tickInterval).want("client ./mine --fast", "running")
		if own.s == nil || own.s.Lock.Exec != "./mine --fast" || !own.m.Running {
			t.Errorf("running is %t with %+v", own.m.Running, own.s)
		}
		d.press(":").enter("exec").press("enter").wait(tickInterval).want("back to the locks of locktop")
		if own.s.Lock.Kind != loadgen.Mutex {
			t.Errorf("back to %s", own.s.Lock)
		}
	})
	broken := &fakeLoad{}
	w.Loader = loaderOf{refusingLoad{broken, errors.New("client processes need a single server, not a cluster")}}
	drive(t, w, func(d *driver) {
		d.press(":").enter("exec ./mine").press("enter", "y").wait(20 * tickInterval).want("not a cluster")
		if broken.m.Running {
			t.Error("other clients run instead")
		}
	})
}

// loaderOf is a Loader of any load.
type loaderOf struct{ load Load }

func (l loaderOf) Open(context.Context) (Load, error) { return l.load, nil }

func TestTheFaultsOfAClientProcess(t *testing.T) {
	w, g := testConfig(), runningLoad()
	w.Load = g
	s := g.Scenario().WithClient("./mine").WithDefaults()
	g.s = &s
	drive(t, w, func(d *driver) {
		d.size(140, 40).wait(tickInterval).press("3", "f").want("SIGKILL to the process of a holder", "SIGSTOP to the process of a holder", "the hello of the client does not say that it obeys")
		d.press("t").want("clock_offset_ms").press("f", "z").want("fault injected: freeze")
		if !slices.ContainsFunc(g.injected, func(f loadgen.Fault) bool { return f.Kind == loadgen.Freeze }) || len(g.injected) != 1 {
			t.Errorf("injected %+v", g.injected)
		}
	})
	g.m.ObeysOffset = true
	drive(t, w, func(d *driver) {
		d.wait(tickInterval).press("3", "f", "t").want("fault injected: skew")
	})
	getset := sceneNamed(t, "getset-skew")
	g.s = &getset
	drive(t, w, func(d *driver) {
		d.size(140, 40).wait(tickInterval).press("3", "f", "t").want("fault injected: skew")
	})
}

// TestAHolderOfAClientProcessIsNamedByTheLoad covers a library whose tokens do not name its
// clients, and one whose tokens differ from those of the protocol: that is no lost reply.
func TestAHolderOfAClientProcessIsNamedByTheLoad(t *testing.T) {
	w, g := played()
	s := g.Scenario().WithClient("./mine").WithDefaults()
	s.Keys.Prefix = "load:"
	g.s = &s
	l := mutex("load:1", "3f2a", 0)
	l.Holders[0].Label = "client-5"
	w.Source.(*fakeServer).locks = append(w.Source.(*fakeServer).locks, l)
	drive(t, w, func(d *driver) {
		g.addEvents(acquired(5, "load:1", 0), fault(loadgen.FaultBegan, loadgen.DropReplies, 5, ""))
		d.wait(4*tickInterval).press("3").want("load:1 held by client-5  ").wantNot("does not know it", "still waits for the reply")
	})
}

// TestAStoredTokenIsNoHolder covers the end of a run of a historic form: its key stays, with a
// token that is the same for all clients.
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

func TestUpAndDownBringBackCommands(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		for _, text := range []string{"page load", "every 2s", "page load"} {
			d.press(":").enter(text).press("enter")
		}
		d.press(":", "up").want(":page load").press("up").want(":every 2s").press("up").want(":every 2s")
		d.press("down").want(":page load").press("down").wantNot(":page load", ":every")
		d.press("down", "up", "up").enter("50ms").want(":every 2s50ms").press("esc")
		d.press("/", "up").wantNot("page load").press("esc")
	})
}
