package tui

import (
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
)

// story is one key doing what the table says of it.
type story struct {
	at   place
	key  string
	play func(d *driver)
}

// onPage is a story told on a page that has been opened.
func (s story) setUp(d *driver) {
	if s.at == onLoad {
		d.press("3")
	}
}

func stories() []story {
	down := func(d *driver, keys ...string) { d.press(keys...) }
	selected := func(d *driver, key string) {
		d.t.Helper()
		if line := d.line("▌"); !strings.Contains(line, key) {
			d.t.Fatalf("selected is %q, want %q:\n%s", line, key, d.screen())
		}
	}
	return []story{
		{onLocks, "?", func(d *driver) { d.press("?").want("everywhere", "filter by key").press("?").wantNot("everywhere") }},
		{onLoad, "?", func(d *driver) { d.press("?").want("start the clients").press("esc").wantNot("everywhere") }},
		{onLocks, "q", func(d *driver) { d.press("q"); wantQuit(d) }},
		{onLoad, "q", func(d *driver) { d.press("q"); wantQuit(d) }},
		{onLocks, "ctrl+c", func(d *driver) { d.press("/", "ctrl+c"); d.press("ctrl+c"); wantQuit(d) }},
		{onLoad, "ctrl+c", func(d *driver) { d.press("ctrl+c"); wantQuit(d) }},
		{onLocks, "ctrl+z", func(d *driver) { d.press("ctrl+z"); wantSuspended(d) }},
		{onLoad, "ctrl+z", func(d *driver) { d.press("ctrl+z"); wantSuspended(d) }},
		{onLocks, "1", func(d *driver) { d.press("1").want("OWNER") }},
		{onLoad, "1", func(d *driver) { d.wantNot("OWNER").press("1").want("OWNER") }},
		{onLocks, "3", func(d *driver) { d.wantNot("outcomes").press("3").want("outcomes") }},
		{onLoad, "3", func(d *driver) { d.press("3").want("outcomes") }},
		{onLocks, "tab", func(d *driver) { d.press("tab").want("outcomes") }},
		{onLoad, "tab", func(d *driver) { d.press("tab").want("OWNER") }},
		{onLocks, "shift+tab", func(d *driver) { d.press("shift+tab").want("outcomes") }},
		{onLoad, "shift+tab", func(d *driver) { d.press("shift+tab").want("OWNER") }},

		{onLocks, "/", func(d *driver) {
			d.press("/").enter("CATALOG").want("1 of 8").press("enter").want("/CATALOG", "rw:catalog").wantNot("lock:{inv}")
		}},
		{onLocks, " ", func(d *driver) { d.press(" ").want("PAUSED 00:00").press(" ").want("● live") }},
		{onLocks, "right", func(d *driver) {
			d.press("right").want("sorted by key").wantOrder("cache:", "fair:", "job:", "lock:orders")
		}},
		{onLocks, "left", func(d *driver) { d.press("left").want("sorted by state").wantOrder("held", "read", "stuck", "write") }},
		{onLocks, "i", func(d *driver) { d.wantOrder("stuck", "orders").press("i").wantOrder("orders", "stuck") }},
		{onLocks, "v", func(d *driver) {
			d.want("since 20:48").press("v").wantNot("since 20:48").press("v").want("since 20:48")
		}},
		{onLocks, "w", func(d *driver) { d.size(160, 45).wantNot("FENCE").press("w").want("FENCE", "812", "RENEWED") }},
		{onLocks, "j", func(d *driver) { d.press("j"); selected(d, "lock:orders") }},
		{onLocks, "down", func(d *driver) { d.press("down"); selected(d, "lock:orders") }},
		{onLocks, "k", func(d *driver) { down(d, "j", "j", "k"); selected(d, "lock:orders") }},
		{onLocks, "up", func(d *driver) { down(d, "j", "j", "up"); selected(d, "lock:orders") }},
		{onLocks, "G", func(d *driver) { d.press("G"); selected(d, "東京") }},
		{onLocks, "end", func(d *driver) { d.press("end"); selected(d, "東京") }},
		{onLocks, "g", func(d *driver) { d.press("G", "g"); selected(d, "job:nightly") }},
		{onLocks, "home", func(d *driver) { d.press("G", "home"); selected(d, "job:nightly") }},
		{onLocks, "pgdown", func(d *driver) { d.size(60, 12).press("pgdown"); selected(d, "東京") }},
		{onLocks, "ctrl+f", func(d *driver) { d.size(60, 12).press("ctrl+f"); selected(d, "東京") }},
		{onLocks, "pgup", func(d *driver) { d.press("G", "pgup"); selected(d, "job:nightly") }},
		{onLocks, "ctrl+b", func(d *driver) { d.press("G", "ctrl+b"); selected(d, "job:nightly") }},
		{onLocks, "esc", func(d *driver) {
			d.press("/").enter("rw").press("enter", " ").want("PAUSED", "2 of 8")
			d.press("esc").want("2 of 8").wantNot("PAUSED").press("esc").wantNot("2 of 8")
			d.press("esc").want("nothing to go back from")
		}},

		{onLoad, "s", func(d *driver) {
			d.want("● running").press("s").wait(2 * beat).want("○ stopped").press("s").wait(2 * beat).want("● running")
		}},
		{onLoad, "+", func(d *driver) { d.want("20 clients").press("+", "+").wait(beat).want("40 clients") }},
		{onLoad, "=", func(d *driver) { d.press("=").wait(beat).want("30 clients") }},
		{onLoad, "-", func(d *driver) { d.press("-", "-").wait(beat).want("9 clients") }},
	}
}

func wantQuit(d *driver) {
	d.t.Helper()
	if !d.quit {
		d.t.Fatal("the program goes on")
	}
}

func wantSuspended(d *driver) {
	d.t.Helper()
	if !d.suspended {
		d.t.Fatal("the program was not suspended")
	}
}

func TestEveryKeyDoesWhatTheTableSays(t *testing.T) {
	told := map[place]map[string]bool{onLocks: {}, onLoad: {}}
	for _, s := range stories() {
		told[s.at][s.key] = true
		t.Run(s.at.String()+" "+s.key, func(t *testing.T) {
			drive(t, world(), func(d *driver) {
				s.setUp(d)
				s.play(d)
				if !d.pressed[s.at][s.key] {
					t.Errorf("the story of %q does not press it", s.key)
				}
			})
		})
	}
	for _, b := range bindings() {
		for at := range told {
			for _, k := range b.keys {
				if (b.place == anywhere || b.place == at) && !told[at][k] {
					t.Errorf("no story of %q at %s", k, at)
				}
			}
		}
	}
}

func TestLettersThatArriveTogetherArePressedOneByOne(t *testing.T) {
	drive(t, world(), func(d *driver) {
		d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("jj/rw")})
		d.settle().want("/rw", "2 of 8")
	})
}

func TestAPasteIsNotACommand(t *testing.T) {
	drive(t, world(), func(d *driver) {
		d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q"), Paste: true})
		d.settle()
		if d.quit {
			t.Error("pasting a text quit the program")
		}
		d.press("/").deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("rw:cat"), Paste: true})
		d.settle().want("1 of 8")
	})
}

func TestNoKeyStandsForTwoThings(t *testing.T) {
	seen := map[string]action{}
	for _, at := range []place{onLocks, onLoad} {
		for _, b := range bindings() {
			for _, k := range b.keys {
				id := at.String() + " " + k
				if old, ok := seen[id]; ok && old != b.action && (b.place == at || b.place == anywhere) {
					t.Errorf("%s stands for two actions", id)
				}
				if b.place == at || b.place == anywhere {
					seen[id] = b.action
				}
			}
		}
	}
}

func TestAKeyThatCannotBeUsedSaysWhy(t *testing.T) {
	alone := world()
	alone.Load = nil
	drive(t, alone, func(d *driver) {
		d.press("x").want("x does nothing here; ? shows the keys")
		d.wait(5 * time.Second).wantNot("does nothing")
		d.press("3").want("no load on this server", "locktop demo")
		for _, k := range []string{"s", "+", "-"} {
			d.press(k).want("only looked at").wait(5 * time.Second)
		}
		d.press("1").size(60, 10).press("v").want("no room for a preview")
	})
	drive(t, World{Source: &server{}}, func(d *driver) {
		d.press("j").want("no locks to move among")
		d.want("no locks among 1,204 keys", "locktop demo")
	})
}

func TestFooterAndHelpComeFromTheTable(t *testing.T) {
	drive(t, world(), func(d *driver) {
		d.size(200, 60)
		foot := d.line("? help")
		d.press("?")
		for _, b := range bindings() {
			if b.help != "" {
				d.want(b.label, b.help)
			}
			if b.word != "" && b.place != onLoad && !strings.Contains(foot, b.label+" "+b.word) {
				t.Errorf("%q is not in %q", b.word, foot)
			}
		}
		for _, st := range []keyspace.State{keyspace.Held, keyspace.Reading, keyspace.Writing, keyspace.Free, keyspace.Waiting, keyspace.Stuck, keyspace.Partial} {
			d.want(string(st))
		}
	})
}

func TestHelpScrollsInASmallWindow(t *testing.T) {
	drive(t, world(), func(d *driver) {
		d.size(60, 12).press("?").want("locks").wantNot("states")
		for range 40 {
			d.press("j")
		}
		d.want("states").press("k").press("esc").wantNot("everywhere")
	})
}
