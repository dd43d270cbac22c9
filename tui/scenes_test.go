package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"locktop/internal/check"
	"locktop/internal/netfault"
	redisserver "locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/scenarios"
)

// nodes are servers inside the test's bubble that can be disconnected, which
// for their clients is the same as a stopped server.
type nodes struct {
	loadgen.NodeController // nil: nothing freezes one
	clients                []redisserver.Client
	links                  []*netfault.Network
}

func fiveNodes(t *testing.T, n int) *nodes {
	t.Helper()
	logging.Disable() // go-redis logs every connection that it cannot open
	all := &nodes{}
	for i := range n {
		e := redisserver.NewPiped()
		link := netfault.New(e.Dial)
		t.Cleanup(func() {
			link.Cut()
			e.Close()
		})
		rdb := servertest.ClientForTest(t, fmt.Sprintf("127.0.0.1:%d", i+1), link.Dial)
		all.clients, all.links = append(all.clients, rdb), append(all.links, link)
	}
	return all
}

func (n *nodes) Down(node int) error {
	n.links[node-1].Refuse(errors.New("the node is down"))
	n.links[node-1].Cut()
	return nil
}

func (n *nodes) Up(_ context.Context, node int, _ bool) error {
	n.links[node-1].Refuse(nil)
	return nil
}

// sceneConfig returns a Config in which a scene really runs: on servers in the
// bubble, with the clients of the load, and a scanner.
func sceneConfig(t *testing.T, s loadgen.Scenario) Config {
	t.Helper()
	five := fiveNodes(t, 5)
	servers := loadgen.Servers{Redis: five.clients[0], Power: five}
	var stations []inspect.NamedSource
	for i, rdb := range five.clients {
		servers.Nodes = append(servers.Nodes, rdb)
		scanner := inspect.NewScanner(rdb, inspect.ScanOptions{Formats: formats.All()})
		stations = append(stations, inspect.NamedSource{Addr: string(rune('a'+i)) + ":1", Source: sourceFunc(scanner.Scan)})
	}
	load := check.Must(loadgen.NewGroup(servers, loadgen.Scenario{Clients: 1}))(t)
	t.Cleanup(func() { _ = load.Close() })
	var source Source = stations[0].Source
	if s.Lock.Kind.Quorum() {
		roster := func(context.Context) ([]inspect.NamedSource, error) { return stations, nil }
		source = inspect.NewMultiSource(roster, inspect.MultiOptions{Mode: "redlock", Redlock: true})
	}
	return Config{Source: source, Load: load, Scenes: []loadgen.Scenario{s}, Scene: s.Name, Quorum: []string{"a:1", "b:1", "c:1", "d:1", "e:1"}, Title: "demo"}
}

// claims are the statements of a scene's caption that the screen must show at some time.
var claims = map[string][]string{
	"hot-key":          {"✓ 0 overlaps", " waiting held "},
	"renewal":          {" renews its lease of 2 s: it has had the lock for ", "█|█", "░░░░", "look for: renewals 5", "✓ 0 overlaps"},
	"renewal-bounded":  {"✓ expired", "✓ late work 0", "✓ 0 overlaps"},
	"freeze":           {"freezes while holding the lock and does not renew", "which is frozen TTL", "acquires it as well", "the data is now corrupt", "stale write accepted 1", "◇ frozen"},
	"crash":            {"dies without releasing", "✝ dead ", "✝░░░", " is dead, locked for ", "3.0 s after the crash", "look for: hand-off max "},
	"reentrant":        {"holding ×1 ", "holding ×2 ", "holding ×3 ", " ×3 TTL", "is inside the lock 1, 2, 3 times", "was inside the lock 1, 2, 3, 2, 1 times; now it is free", "✓ 0 overlaps"},
	"readers-writers":  {"read by client-", "written by client-", "wants to write: readers that come now wait", "● writes ", "● reads ", "○ waits to read", "○ waits to write", " writes, alone", " read together"},
	"fair":             {"overtaken 0", "○ waiting", "✓ 0 overlaps"},
	"freeze-fenced":    {"freezes while holding", "holding #", "█✓", "refused, its fencing token", "stale write refused 1", "0 overlaps, but two clients worked"},
	"redlock-minority": {"1 ✗ down 2 ● client-", "on 3 of 5 servers", "4 of 5 nodes up (majority: 3)", "3 of 5 nodes up (majority: 3)", "✓ 0 overlaps"},
	"redlock-majority": {"4 of 5 nodes up", "3 of 5 nodes up", "no lock can be acquired until 3 respond", "no majority of the servers is up", "1 ✗ down 2 ✗ down 3 ○ 4 ○ 5 ✗ down", "5 of 5 nodes up", "✓ 0 overlaps"},
	"semaphore":        {"held by 2 clients of at most 2", "dies without releasing", "semaphore 2, notify", "mutex, notify", "✓ 0 overlaps"},
	"several-keys":     {"dies without releasing", "has run out: client-", "✓ 0 overlaps"},
	"deadlock":         {"timed out", "✓ 0 overlaps", ":1 ─", ":2 ─", "client-1 ● holding", "client-2 ● holding", "client-1 ○ waiting", "client-2 ○ waiting"},
	"one-order":        {"✓ 0 overlaps"},
	"herd":             {"commands per hold", "mutex, poll 5ms", "mutex, notify", "fair"},
	"phantom":          {"the replies to it are lost", "the server granted", "which does not know it", "✓ 0 overlaps"},
	"setnx-crash":      {"dies before EXPIRE", "can never be acquired again", "no TTL", "no client could acquire one key", "▲ nobody can get a lock", "✝ client-", " is dead, without a TTL: locked for ever"},
	"exists-set":       {"OVERLAP", "the known flaw of classic/exists-set"},
	"getset-skew":      {"the clock of client-", "OVERLAP", ", as expected", "the known flaw of classic/getset"},
	"blind-delete":     {"another client's", "OVERLAP", "held by client-"},
	"get-then-del":     {"freezes before DEL while holding", "another client's"},
	"counted":          {"works past its lease", "no fencing check, the data is now corrupt"},
	"two-key-rw":       {"OVERLAP", "the known flaw of classic/two-key-rw"},
	"stamp-rw":         {"OVERLAP", "the known flaw of classic/stamp-rw"},
	"quorum-semaphore": {"OVERLAP", "More than 2 clients held the lock at the same time", "the known flaw of classic/quorum-semaphore"},
}

// denials are texts that the screen must not show at the end of a scene.
var denials = map[string][]string{
	"blind-delete": {"renewal on", "held by permits"},
	"setnx-crash":  {"renewal on", "the lock held", "before the lease runs out", "✓ no overlaps"},
	"getset-skew":  {"renewal on"},
}

// screenWords returns the text of the screen without line breaks.
func screenWords(d *driver) string { return strings.Join(strings.Fields(d.screen()), " ") }

// A scene with more clients than manyClients has that number here, and runs for
// shortScene. It shows its effect from the beginning.
const (
	shortScene  = time.Second
	manyClients = 12
)

func TestEverySceneShowsWhatItsCaptionClaims(t *testing.T) {
	for i, s := range scenarios.All() {
		if i%testtier.Size(8, 1, 1) > 0 {
			continue
		}
		s.Seed = 1
		if s.Clients > manyClients {
			s.Duration, s.Clients = min(s.Duration, shortScene), manyClients
		}
		if s.Lock.Kind == loadgen.Redlock {
			s.Clients = 3 // each sends its commands to five nodes
		}
		t.Run(s.Name, func(t *testing.T) {
			driveNew(t, func(t *testing.T) Config { return sceneConfig(t, s) }, func(d *driver) {
				d.size(120, 40).press("3")
				missing := slices.Clone(claims[s.Name])
				for !d.app.run.metrics.Running {
					d.wait(tickInterval / 5)
				}
				for d.app.run.metrics.Running {
					d.wait(tickInterval / 5)
					missing = slices.DeleteFunc(missing, func(text string) bool { return strings.Contains(screenWords(d), text) })
				}
				d.wait(tickInterval).want("final").wantNot("(expected", "did not show what it is for")
				for _, text := range denials[s.Name] {
					check.False(t, strings.Contains(screenWords(d), text), "there is %q on the screen:\n%s", text, d.screen())
				}
				check.True(t, len(missing) == 0, "never on the screen: %q; the last one:\n%s", missing, d.screen())
			})
		})
	}
}

// A window of 80×24 shows the whole caption, the figures to look for and the verdict, and none is cut.
func TestASceneIsUnderstoodInASmallWindow(t *testing.T) {
	for _, s := range scenarios.All() {
		w := testConfig()
		g := runningLoad()
		g.m.Latency.Wait.Count, g.m.Violations.WorkOverlap.Count = 1, 1234
		w.Load, w.Scenes, w.Scene = g, []loadgen.Scenario{s}, s.Name
		drive(t, w, func(d *driver) {
			watch := strings.TrimSpace(d.size(300, 24).wait(tickInterval).line("look for: "))
			for _, size := range [][2]int{{80, 24}, {100, 26}, {120, 35}, {140, 40}} {
				d.size(size[0], size[1]).wait(tickInterval)
				for _, text := range []string{strings.Join(strings.Fields(s.Caption), " "), watch, "0 overlaps, but ", "settings " + string(s.Lock.Kind)} {
					check.True(t, strings.Contains(screenWords(d), text),
						"%s at %v: no %q on the screen:\n%s", s.Name, size, text, d.screen())
				}
			}
			d.press("down").want("── settings ──", "hold ").press("esc").wantNot("── settings ──")
		})
	}
}

// At 80×24 neither the verdict nor the line of a key is cut, however long their figures.
func TestNothingOfASceneIsCutInASmallWindow(t *testing.T) {
	w, g := played()
	s := g.Scenario()
	s.Keys.Prefix, s.Keys.N = "load:{a-long-prefix-of-some-load}:", 1
	g.s = &s
	g.m.Violations.WorkOverlap.Count = 1234
	drive(t, w, func(d *driver) {
		d.size(80, 24).press("3")
		g.addEvents(acquired(1, s.Keys.Prefix+"1", 0))
		d.wait(tickInterval).want("two clients worked at the same time 1,234 times")
		line := strings.TrimSpace(d.line(s.Keys.Prefix))
		check.True(t, strings.HasSuffix(line, "0 waiting  held 4%"), "the line of the key is %q", line)
		line = strings.TrimSpace(d.size(100, 24).line(s.Keys.Prefix))
		check.True(t, strings.HasSuffix(line, "held 4% of the last 10 s"), "the line of the key is %q", line)
		g.m.Violations.Overlap.Count, g.m.Violations.Overlap.Longest = 1234, 247*time.Millisecond
		d.size(80, 24).wait(2 * tickInterval).want("1,234 OVERLAPS, longest 247 ms: two clients held it at the same time")
	})
}

// The menu has the lesson of at least 12 scenes, and the whole caption of the selected one. Its own key leaves it open:
// the next letter must not act on the page.
func TestTheMenuOfScenesFitsASmallWindow(t *testing.T) {
	w := testConfig()
	w.Scenes = scenarios.All()
	drive(t, w, func(d *driver) {
		d.size(80, 24).press("m", "m").want("1 to 16 of 27 · Esc closes", "▌  a  hot-key")
		for i, scene := range w.Scenes {
			caption := strings.Join(strings.Fields(scene.Caption), " ")
			lesson, _, _ := strings.Cut(caption, ". ")
			check.True(t, strings.Contains(screenWords(d), caption) && strings.Contains(d.line("▌"), lesson), "the caption of %s is cut:\n%s", scene.Name, d.screen())
			check.True(t, len(d.app.screen.glyphs.Wrap(caption, 78, 9)) <= 2 && len(lesson) < 56, "the caption of %s fills more than two lines, or its first sentence more than one", scene.Name)
			check.True(t, i != 0 || strings.HasSuffix(d.line("a  hot-key"), "▐"), "no scroll bar at the beginning:\n%s", d.screen())
			d.press("down")
		}
		d.press("up").want(" to 27 of 27", "▌  O  quorum-semaphore")
		check.True(t, strings.HasSuffix(d.line("quorum-semaphore"), "▐"), "no scroll bar at the end:\n%s", d.screen())
		d.size(140, 60).want("Esc closes").wantNot("of 27", "▐")
	})
}

// A reply of a client process that is read late can look like an overlap: the screen says so.
func TestAnOverlapOfLateRepliesIsDoubtful(t *testing.T) {
	a := newApp(t.Context(), Config{})
	a.run.scenario.Lock.Kind, a.run.metrics.Acquired, a.run.metrics.Stall.Longest = loadgen.Exec, 9, time.Second
	a.run.metrics.Violations.Overlap = oracle.Tally{Count: 1, Longest: 132 * time.Millisecond}
	_, words := a.verdict()
	check.Contains(t, words, "perhaps 1 overlap, longest 132 ms: or replies were late")
}
