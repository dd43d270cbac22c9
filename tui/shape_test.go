package tui

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/svg"
	"locktop/tui/widget"
)

func TestEverySizeIsFilledExactly(t *testing.T) {
	w := redlockConfig(testConfig())
	w.Scenes, w.Executor = scenes(), &fakeExecutor{}
	w.Source = &fakeServer{locks: append(sampleServer().locks, w.Source.(*fakeServer).locks...), nodes: w.Source.(*fakeServer).nodes}
	g := runningLoad()
	w.Load = g
	drive(t, w, func(d *driver) {
		d.press("m").everySize("the menu of scenes", testtier.Size(15, 5, 5)).press("esc")
		g.addEvents(acquired(5, "load:1", 7), fault(loadgen.FaultBegan, loadgen.Freeze, 5, ""), acquired(6, "load:1", 8), on(loadgen.EventKind(oracle.StaleWriteRefused), 5, "load:1", 7))
		d.wait(tickInterval)
		for i, keys := range [][]string{
			{"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"6"}, {"1", "enter"}, // the pages
			{"esc", "w"}, {"w", "v"}, {"v", "?"}, {"esc", "/"}, {"esc", ":"}, {"esc", "x"}, {"r"}, {"esc", "y"},
			{"esc", "ctrl+s"}, {"esc", "3", "f"}, {"esc", "m"}, {"esc", "enter"}, {"esc", "1", " "}, {" ", "p"},
		} {
			d.press(keys...).wait(tickInterval)
			every := testtier.Size(9, 3, 3)
			if i >= len(allPages()) { // a dialog has the shape of its page
				every = testtier.Size(21, 7, 7)
			}
			d.everySize(strings.Join(keys, " "), every)
		}
	})
}

// scenes returns some scenarios, one with more text than fits.
func scenes() []loadgen.Scenario {
	var all []loadgen.Scenario
	for i := range 19 {
		all = append(all, loadgen.Scenario{
			Name: fmt.Sprintf("scene-%d", i), Watch: strings.Repeat("what there is to see ", i),
			Caption: strings.Repeat("What it is about. ", 3*i),
		}.WithDefaults())
	}
	return all
}

// everySize draws the screen in windows up to 160×60: all widths and heights up to 6, and then the multiples of every.
func (d *driver) everySize(after string, every int) *driver {
	d.t.Helper()
	for w := range 161 {
		for h := range 61 {
			if w > 6 && w%every != 0 || h > 6 && h%every != 0 {
				continue
			}
			d.app.screen.w, d.app.screen.h = w, h
			fault := faultOf(d.app.View(), w, h)
			check.Require(d.t, fault == "", "after %q at %dx%d: %s", after, w, h, fault)
		}
	}
	d.app.screen.w, d.app.screen.h = 160, 60
	return d
}

// payloads are texts that other clients of Redis could store to attack the terminal.
func payloads() []string {
	return []string{
		"\x1b[2J", "\x1b]0;title\a", "\x1b]52;c;ZXZpbA==\x1b\\", "\x1b]8;;http://evil\x1b\\x", "\x1bP+q\x1b\\", "\x1b[6n", "\x1b[8m",
		"\x9b2J", "\u009b2J", "\u0085", "lock:evil\rlock:good", "a\bb", "\a", "\x00", "a\nfake row", "\t", "\x7f", "\x0e", "\v\f",
		"\u202egnp.exe", "\u2066\u2069", "\u200b", "\ufeff", "\u00ad", "\U000e0041", "\ufe0f", "\u3164", "\u2800", "\u2028\u2029",
		"\xff\xfe", "\xed\xa0\x80", "\xf0\x9f", "e" + strings.Repeat("\u0301", 50), "👩\u200d👧", "🇩🇪", "\ue000", "\uffff", "ก็", "각", "",
	}
}

// hostile returns a Config in which every text from outside is s.
func hostile(s string) Config {
	l := keyspace.Lock{
		Key: s, Format: s, Kind: keyspace.RW, Confidence: keyspace.Likely, Node: s, Expires: after(time.Minute), Fence: 3,
		Holders: []keyspace.Holder{{ID: "id" + s, Label: s, Depth: 1, Mode: keyspace.Read}, {ID: s + "2", Depth: 2}},
		Waiters: []keyspace.Waiter{{ID: s}},
	}
	l.Votes = []keyspace.Vote{{Node: s, Token: s}}
	nodes := []keyspace.Node{{Server: keyspace.Server{Addr: s, Role: s, Version: s}, Up: true}, {Server: keyspace.Server{Addr: s}, Error: s}}
	stuck := l
	stuck.Expires, stuck.Holders, stuck.DB = time.Time{}, l.Holders[1:], 1
	g := runningLoad()
	g.m.LastErr, g.fails = s, fmt.Errorf("start: %s", s)
	g.s = &loadgen.Scenario{Name: s, Caption: "c" + s, Keys: loadgen.Keys{Prefix: s}}
	g.addEvents(acquired(1, s, 3), fault(loadgen.FaultBegan, loadgen.Freeze, 1, ""), acquired(2, s, 4), on(loadgen.EventKind(oracle.StaleWriteRefused), 1, s, 3),
		fault(loadgen.FaultBegan, loadgen.NodeDown, 0, s), on(loadgen.EventKind(oracle.ForeignUnlock), 2, s, 0))
	return Config{
		Source: &fakeServer{locks: []keyspace.Lock{l, stuck}, nodes: nodes, edit: func(snap *keyspace.Snapshot) {
			snap.Server = keyspace.Server{Mode: s, Version: s, Addr: s, Role: s}
		}},
		Load:  g,
		Title: s,

		Executor:  &fakeExecutor{err: fmt.Errorf("release: %s", s)},
		Formats:   []keyspace.Format{{About: keyspace.About{Name: s, Library: s}, Actions: actionFormats()[0].Actions}},
		Store:     hostileStore(s),
		Connector: func(context.Context, Target) (Config, error) { return Config{}, fmt.Errorf("connect: %s", s) },
	}
}

// hostileStore stores a text in each place of an entry.
func hostileStore(s string) Store {
	one := keyspace.Member{Name: s, Value: s}
	return func(context.Context, keyspace.Lock) []RawEntry {
		return []RawEntry{
			{s, keyspace.Entry{Key: s, Type: "string", Value: s, Len: 1 << 20}, nil},
			{s, keyspace.Entry{Key: s, Type: "hash", Members: []keyspace.Member{one, one}, Len: 2}, nil},
			{s, keyspace.Entry{Key: s, Type: s, Members: []keyspace.Member{one}, Len: 300}, nil},
			{s, keyspace.Entry{}, errors.New(s)},
		}
	}
}

// Promise P10.
func TestNothingFromOutsideReachesTheTerminalRaw(t *testing.T) {
	all := payloads()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range testtier.Size(5, 30, 30) {
		bytes := make([]byte, 1+rnd.IntN(60))
		for i := range bytes {
			bytes[i] = byte(rnd.UintN(256))
		}
		all = append(all, string(bytes))
	}
	for i, s := range all {
		if !testtier.InLong() && i%3 > 0 {
			continue
		}
		t.Run(fmt.Sprintf("%+q", s), func(t *testing.T) {
			w := hostile(s)
			drive(t, w, func(d *driver) { meet(d, w.Source.(*fakeServer), s) })
		})
	}
}

// meet opens every page and every dialog of a hostile Config. The driver checks
// each frame for characters that the screen does not write.
func meet(d *driver, v *fakeServer, s string) {
	paste := func() { d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(s), Paste: true}) }
	d.size(160, 45).wait(2*tickInterval).press("w", "j", "/")
	paste()
	d.press("left", "enter", "enter").wait(2*tickInterval).press("G", "esc", "y", "esc", "x", "r", "y", "2", "4", "5", "6", "p", "p", "ctrl+s", "esc", ":")
	paste()
	d.press("enter", ":").enter("db 7").press("enter").wait(tickInterval).press(":").enter("lock ")
	paste()
	d.press("enter", "3", "s", "w", "m", "f", "esc", "enter")
	paste()
	d.press("enter")
	v.err = fmt.Errorf("scan: %s", s)
	d.wait(2*time.Second).size(50, 8).press("1").size(100, 30).press("?", "j", "esc")
}

func TestRandomKeysLeaveNoFrameOutOfShape(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	names := []string{"j", "k", "G", "g", "pgdown", "pgup", "/", "enter", "esc", "left", "right", "i", "v", "w", " ", "?", "1", "3", "tab", "+", "-", "s", "a", "~", "(", "backspace", "home"}
	v := sampleServer()
	drive(t, Config{Source: v, Load: runningLoad()}, func(d *driver) {
		for range testtier.Size(500, 2000, 2000) {
			switch rnd.IntN(10) {
			case 0:
				d.size(rnd.IntN(161), rnd.IntN(61))
			case 1:
				v.locks = append([]keyspace.Lock{}, sampleServer().locks[rnd.IntN(9):]...)
				d.wait(tickInterval)
			default:
				d.press(names[rnd.IntN(len(names))])
			}
		}
	})
}

func manyLocks(n int) (locks []keyspace.Lock) {
	for i := range n {
		l := mutex(fmt.Sprintf("lock:orders:%08d", i), fmt.Sprintf("worker-%d", i%97), time.Duration(i%60+1)*time.Second)
		if i%3 == 0 {
			l.Waiters = []keyspace.Waiter{{ID: "w"}}
		}
		locks = append(locks, l)
	}
	return locks
}

// snapshotOf returns a snapshot of n locks.
func snapshotOf(n int) keyspace.Snapshot {
	snap := keyspace.Snapshot{At: midnight, Complete: true}
	for _, l := range manyLocks(n) {
		snap.Locks = append(snap.Locks, &l)
	}
	return snap
}

func appWith(n int) *app {
	a := newApp(context.Background(), Config{Title: "here"})
	a.Update(tea.WindowSizeMsg{Width: 160, Height: 60})
	a.onSnapshot(newViewModel(snapshotOf(n), midnight, nil), midnight, nil, 0)
	a.now = midnight
	return a
}

func TestFindingsAreComputedAgainTheSoonerTheFewerLocks(t *testing.T) {
	for n, want := range map[int]time.Duration{1: time.Second, 5000: time.Second, 10_000: 2 * time.Second, 30_000: 6 * time.Second, 60_000: 10 * time.Second} {
		check.Equal(t, derivedFor(n), want, "%d locks", n)
		if n > 10_000 {
			continue // a model of so many locks takes seconds under the race detector
		}
		before := newViewModel(snapshotOf(n), midnight, nil)
		workedOut := func(after time.Duration) bool {
			snap := before.snap
			snap.At = snap.At.Add(after)
			return newViewModel(snap, midnight, before).review.CheckedAt.Equal(snap.At)
		}
		check.True(t, !workedOut(want-time.Millisecond) && workedOut(want),
			"what is wrong with %d locks is not worked out anew after %v", n, want)
	}
}

func TestTheTitleOfTheSortedColumnIsNotCut(t *testing.T) {
	for _, c := range lockColumns() {
		check.True(t, c.less == nil || c.Min >= widget.Width(c.Title)+1, "%s: %d cells have no room for the arrow", c.Title, c.Min)
	}
}

func TestASavedImageHasBlocksAndLinesAsGeometry(t *testing.T) {
	g := widget.Blocks()
	drawn := []string{g.Rule, g.Cursor, g.Thumb, g.Shared, g.Dashed, g.Behind}
	drawn = append(append(drawn, g.Across[1:]...), g.Upward[1:]...)
	for _, glyph := range drawn {
		if image := string(svg.Draw("", glyph, 1, 1)); strings.Count(image, "<text") != 1 { // that of the title
			t.Errorf("%s is left to the font", glyph)
		}
	}
}

// faultLogConfig returns a Config whose load has a fault log and scenes to choose from.
func faultLogConfig(w Config) Config {
	g := runningLoad()
	w.Load, w.Scenes = g, scenes()
	g.addEvents(acquired(2, "load:1", 20), fault(loadgen.FaultBegan, loadgen.Freeze, 2, ""), acquired(1, "load:1", 21),
		fault(loadgen.FaultEnded, loadgen.Freeze, 2, ""), on(loadgen.EventKind(oracle.StaleWriteRefused), 2, "load:1", 20))
	return w
}

// TestGoldenFrames compares each size in one theme, and each theme and glyph set at one size.
func TestGoldenFrames(t *testing.T) {
	for _, c := range []struct {
		w, h          int
		theme, glyphs string
	}{
		{80, 24, "system", "block"}, {100, 30, "system", "block"}, {160, 45, "system", "block"},
		{100, 30, "mono", "block"}, {100, 30, "mono", "ascii"},
	} {
		w, _ := writeConfig()
		w.Theme, w.Glyphs = c.theme, c.glyphs
		name := fmt.Sprintf("%dx%d-%s", c.w, c.h, c.theme)
		if c.glyphs == "ascii" {
			name = fmt.Sprintf("%dx%d-ascii", c.w, c.h)
		}
		t.Run(name, func(t *testing.T) {
			drive(t, w, func(d *driver) {
				d.app.privacy.salt = [16]byte{} // so that the hashes are the same in every run
				d.size(c.w, c.h)
				d.golden("locks-" + name)
				d.press("3").golden("load-" + name)
				d.press("?").golden("help-" + name)
				d.press("esc", "2").golden("timeline-" + name)
				d.press("4").golden("nodes-" + name)
				d.press("5").golden("findings-" + name)
				d.press("6").golden("events-" + name)
				d.press("1", "j", "enter").wait(2 * tickInterval).golden("lock-" + name)
				d.press("esc", "x").golden("act-" + name)
				d.press("r").golden("confirm-" + name)
				d.press("esc", ":").enter("the").golden("command-" + name)
				d.press("esc", "/").enter("rw").golden("filter-" + name)
				d.press("esc", "p", "1").golden("privacy-" + name)
			})
			drive(t, faultLogConfig(w), func(d *driver) {
				d.size(c.w, c.h).press("m").golden("scenes-" + name)
				d.press("esc", "3").wait(tickInterval).golden("fault-log-" + name)
			})
			agents, _ := agentsConfig(w)
			drive(t, agents, func(d *driver) { d.size(c.w, c.h).press("3").wait(tickInterval).golden("agents-" + name) })
			drive(t, redlockConfig(w), func(d *driver) { d.size(c.w, c.h).press("4").golden("redlock-" + name) })
		})
	}
}
