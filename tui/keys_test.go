package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/keyspace"
	"locktop/loadgen"
)

// keyTest is one key that does what the table says.
type keyTest struct {
	at   pageSet
	key  string
	play func(d *driver)
}

func keyTests() []keyTest {
	own := []keyTest{

		{onLocks, "/", func(d *driver) {
			d.press("/").enter("CATALOG").want("1 of 8").press("enter").want("/CATALOG", "rw:catalog").wantNot("lock:{inv}")
		}},
		{onLocks, "s", func(d *driver) {
			d.press("s").want("severity  worst first now").press("l").want("order: by lock").wantOrder("cache:", "fair:", "job:", "lock:orders")
			d.press("s", "s").want("order: by state").wantOrder("held", "read", "stuck", "write").press("s", "enter").wantOrder("write", "stuck", "read", "held")
		}},
		{onLocks, "i", func(d *driver) { d.wantOrder("stuck", "orders").press("i").wantOrder("orders", "stuck") }},
		{onLocks, "o", func(d *driver) {
			d.wantNot("with one lock each").press("o").want("owners with one lock each").press("o").wantNot("with one lock each")
		}},
		{onLocks, "v", func(d *driver) {
			d.want("since 20:48").press("v").wantNot("since 20:48").press("v").want("since 20:48").size(160, 45).press("v").wantNot("FENCE")
		}},
		{onLocks, "w", func(d *driver) { d.size(160, 45).wantNot("FENCE").press("w").want("FENCE", "812", "RENEWED") }},
		{onLocks, "esc", func(d *driver) {
			d.press("/").enter("rw").press("enter", " ").want("PAUSED", "2 of 8")
			d.press("esc").want("2 of 8").wantNot("PAUSED").press("esc").wantNot("2 of 8")
			d.press("esc").want("nothing to leave").press("n").want("2 of 8").press("N").wantLine("▌", "rw:catalog").press("n").wantLine("▌", "rw:index")
		}},
		{onLocks, "n", func(d *driver) { d.press("n").want("no filter yet; / sets one") }},
		{onLocks, "N", func(d *driver) { d.press("N").want("no filter yet") }},
		{onLocks, "t", func(d *driver) {
			d.press("t").want("1 tagged", "✓").wantLine("▌", "lock:orders")
			d.press("k", "t").wantNot("tagged").press("g", "t", "esc").wantNot("tagged")
		}},
		{onLocks, "y", func(d *driver) {
			d.press("y").want("copy from job:nightly").press("k").want("copied the key")
			d.press("y", "t").want("copied the token")
			check.Equal(d.t, d.copied, "cron-2", "copied")
			d.app.config.Clipboard = func(string) error { return errors.New("no clipboard") }
			d.press("y", "k").want("no clipboard")
		}},
		{onLocks, "+", func(d *driver) {
			d.press("-", "+").want("refresh every 250 ms").press("+").want("already at the limit")
		}},
		{onLocks, "=", func(d *driver) { d.press("=").want("already at the limit") }},
		{onLocks, "-", func(d *driver) { d.press("-").want("refresh every 500 ms") }},

		{onLocks, "x", func(d *driver) { d.press("x").want("this screen only reads") }},
		{onLock, "x", func(d *driver) { d.press("x").want("this screen only reads") }},
		{onFindings, "x", func(d *driver) { d.press("x").want("this screen only reads") }},
		{onLock, "enter", func(d *driver) { d.press("enter").want("no other lock is connected with this one") }},
		{onLock, "W", func(d *driver) { d.press("W").want("the clients of this server cannot be listed") }},
		{onLock, "e", func(d *driver) { d.press("e").want("e for the lock", "next").press("e").want("is it stuck") }},
		{onLock, "z", func(d *driver) { d.press("z").want("snoozed for 1 h", "back in 1 h 00") }},
		{onLock, "y", func(d *driver) {
			d.press("y").want("copy from job:nightly", "command that sets a deadline").press("esc")
		}},

		{onTimeline, "+", func(d *driver) { d.want("1 m 00").press("+").want("30 s  ending now") }},
		{onTimeline, "=", func(d *driver) { d.press("=", "=", "=", "=").want("2.0 s").press("=").want("already at the limit") }},
		{onTimeline, "-", func(d *driver) { d.press("-").want("2 m 00") }},
		{onTimeline, "left", func(d *driver) { d.press("left").want("ending 15 s ago").press("esc").want("ending now") }},
		{onTimeline, "right", func(d *driver) {
			d.press("left", "left", "right").want("ending 15 s ago").press("right").want("ending now")
		}},
		{onTimeline, "n", func(d *driver) {
			d.press("/").enter("rw").press("enter", "n").wantLine("▌", "rw:index").press("esc", "n").want("2 of 8")
		}},
		{onTimeline, "N", func(d *driver) { d.press("/").enter("rw").press("enter", "n", "N").wantLine("▌", "rw:catalog") }},
		{onTimeline, "/", func(d *driver) {
			d.want("8 lanes").press("/").enter("api-9").want("1 of 8").press("enter").want("1 of 8 lanes /api-9", "rw:catalog").wantNot("job:nightly")
			d.press("/").press("ctrl+u").enter("!rw:").want("6 of 8").press("enter").want("job:nightly").wantNot("rw:index")
			d.press("esc").want("rw:index", "8 lanes").press("esc").want(uniqueWord[onLocks])
		}},
		{onTimeline, "[", func(d *driver) { d.press("[").want("no violation before this time") }},
		{onTimeline, "]", func(d *driver) { d.press("]").want("no violation after this time") }},

		{onNodes, "d", func(d *driver) { d.press("d").want("only the five servers of a redlock") }},
		{onNodes, "e", func(d *driver) { d.press("e").want("only the five servers of a redlock") }},
		{onFindings, "/", func(d *driver) {
			d.press("/").enter("never").want("1 of 2").press("enter").wantNot("overdue").press("esc").wantNot("1 of 2")
		}},
		{onFindings, "z", func(d *driver) { d.press("z").want("snoozed for 1 h", "1 snoozed") }},
		{onFindings, "y", func(d *driver) { d.press("y").want("copy from job:nightly").press("esc") }},
		{onEvents, "y", func(d *driver) { d.press("y").want("copy from this event", "key", "client", "event").press("esc") }},
		{onEvents, "n", func(d *driver) { d.press("/").enter("orders").press("enter", "esc", "n").want("/orders") }},
		{onEvents, "N", func(d *driver) { d.press("N").want("no filter yet") }},
		{onFindings, "n", func(d *driver) { d.press("n").want("no filter yet") }},
		{onFindings, "N", func(d *driver) { d.press("N").want("no filter yet") }},
		{onEvents, "/", func(d *driver) {
			d.press("/").enter("orders").press("enter").want("/orders").wantNot("nightly").press("esc").want("nightly")
		}},

		{onLoad, "s", func(d *driver) {
			d.want("● running").press("s").wait(2 * tickInterval).want("○ stopped").press("s").wait(2 * tickInterval).want("● running")
		}},
		{onLoad, "enter", func(d *driver) { d.press("j", "enter").enter("33").press("enter").want("33 clients") }},
		{onLoad, "f", func(d *driver) { d.press("f").want("Inject a fault", "a holder is gone").press("esc") }},
		{onLoad, "n", func(d *driver) { d.press("n").want("no scenes here") }},
		{onLoad, "b", func(d *driver) { d.press("b").want("no scenes here") }},
		{onLoad, "w", func(d *driver) {
			d.press("w").want("saved as /tmp/scenario.yaml")
			s, err := loadgen.Parse(d.saved)
			check.True(d.t, err == nil && s.Name == "hot-key" && s.Clients == 20, "what was written is %+v, %v", s, err)
		}},
		{onLoad, "right", func(d *driver) { d.press("right").wait(tickInterval).want("← reentrant →") }},
		{onLoad, "left", func(d *driver) { d.press("j", "left").wait(tickInterval).want("← 10 →") }},
		{onLoad, "j", func(d *driver) { d.press("j").wantLine("▌", "clients") }},
		{onLoad, "down", func(d *driver) { d.press("down").wantLine("▌", "clients") }},
		{onLoad, "k", func(d *driver) { d.press("j", "j", "k").wantLine("▌", "clients") }},
		{onLoad, "up", func(d *driver) { d.press("j", "j", "up").wantLine("▌", "clients") }},
		{onLoad, "]", func(d *driver) { d.press("]").wait(tickInterval).want("50 ms on average") }},
		{onLoad, "[", func(d *driver) { d.press("[").wait(tickInterval).want("10 ms on average") }},
		{onLoad, "l", func(d *driver) { d.press("l").want("client-1 is") }},
		{onLoad, "h", func(d *driver) { d.press("h").want("client-20 is").press("l").wantNot("client-20") }},
		{onLoad, "+", func(d *driver) { d.want("20 clients").press("+", "+").wait(tickInterval).want("40 clients") }},
		{onLoad, "=", func(d *driver) { d.press("=").wait(tickInterval).want("30 clients") }},
		{onLoad, "-", func(d *driver) { d.press("-", "-").wait(tickInterval).want("9 clients") }},
	}
	for _, key := range strings.Fields("j down G end pgdown ctrl+f ctrl+d k up g home pgup ctrl+b ctrl+u") {
		own = append(own, keyTest{onLock, key, func(d *driver) { scrolls(d, key) }})
	}
	for at, opens := range map[pageSet]string{onLocks: "enter l right", onTimeline: "enter l", onFindings: "enter l right", onEvents: "enter l right", onNodes: "", onLock: ""} {
		for key := range strings.FieldsSeq(opens) {
			own = append(own, keyTest{at, key, func(d *driver) { d.press("j", key).want("── now ──").press("q").want(uniqueWord[at]) }})
		}
		for _, key := range []string{"h", "left"} {
			if at != onTimeline || key != "left" {
				own = append(own, keyTest{at, key, func(d *driver) { d.press(key).want(uniqueWord[onLocks]) }})
			}
		}
	}
	return append(own, listKeyTests()...)
}

// listKeyTests returns the tests of the keys that move through a list.
func listKeyTests() []keyTest {
	row := func(d *driver) int {
		for i, line := range strings.Split(d.screen(), "\n") {
			if strings.HasPrefix(line, "▌") {
				return i
			}
		}
		d.t.Fatalf("nothing is selected:\n%s", d.screen())
		return 0
	}
	var all []keyTest
	for at, n := range map[pageSet]int{onLocks: 8, onTimeline: 8, onFindings: 2, onEvents: 25, onNodes: 1} {
		n = min(n, 12)
		for _, key := range []string{"j", "down", "k", "up"} {
			all = append(all, keyTest{at, key, func(d *driver) {
				from := row(d)
				d.press("j", key)
				want := map[bool]int{true: min(from+2, from+n-1), false: from}[key == "j" || key == "down"]
				check.Equal(d.t, row(d), want, "the selected line")
			}})
		}
		for _, key := range []string{"G", "end", "pgdown", "ctrl+f", "ctrl+d"} {
			all = append(all, keyTest{at, key, func(d *driver) {
				from := row(d)
				d.press(key)
				check.True(d.t, n <= 1 || row(d) > from, "%s did not move", key)
			}})
		}
		for _, key := range []string{"g", "home", "pgup", "ctrl+b", "ctrl+u"} {
			all = append(all, keyTest{at, key, func(d *driver) {
				from := row(d)
				d.press("G", "g", map[bool]string{true: "ctrl+d", false: "pgdown"}[key == "ctrl+u"], key)
				check.True(d.t, row(d) == from, "%s did not come back", key)
			}})
		}
	}
	return all
}

// scrolls expects that a key scrolls the page of a lock down in a small window, or up again.
func scrolls(d *driver, key string) {
	d.t.Helper()
	d.size(100, 14)
	before, back := d.screen(), slices.Contains(strings.Fields("k up g home pgup ctrl+b ctrl+u"), key)
	if back {
		d.press("j")
	}
	d.press(key)
	check.True(d.t, (d.screen() == before) == back, "%s did not scroll", key)
}

func wantQuit(d *driver) {
	d.t.Helper()
	check.Require(d.t, d.quit, "the program goes on")
}

func TestEveryKeyDoesWhatTheTableSays(t *testing.T) {
	told := map[pageSet]map[string]bool{}
	for _, at := range allPages() {
		told[at] = map[string]bool{}
	}
	for _, s := range append(keyTests(), everywhereKeyTests()...) {
		told[s.at][s.key] = true
		t.Run(s.at.String()+" "+s.key, func(t *testing.T) {
			drive(t, testConfig(), func(d *driver) {
				d.press(map[pageSet]string{onLocks: "1", onTimeline: "2", onLoad: "3", onNodes: "4", onFindings: "5", onEvents: "6", onLock: "enter"}[s.at])
				s.play(d)
				check.True(t, d.pressed[s.at][s.key], "the test of %q does not press it", s.key)
			})
		})
	}
	for _, b := range newKeymap(nil, nil) {
		for at := range told {
			for k := range b.named() {
				check.True(t, b.place&at == 0 || told[at][k], "no test of %q at %s", k, at)
			}
		}
	}
}

func TestTheSampleScreen(t *testing.T) {
	for name, play := range map[string]func(d *driver){
		"letters that arrive together are pressed one by one": func(d *driver) {
			d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("jj/rw")})
			d.settle().want("/rw", "2 of 8")
		},
		"a paste is not a command": func(d *driver) {
			d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q"), Paste: true})
			d.settle()
			check.False(d.t, d.quit, "pasting a text quit the program")
			d.press("/").deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("rw:cat"), Paste: true})
			d.settle().want("1 of 8")
		},
		"footer and help come from the table": func(d *driver) {
			d.size(200, 95)
			foot := d.line("? help")
			d.press("?")
			for _, b := range newKeymap(nil, nil) {
				d.want(b.label, b.help)
				check.True(d.t, b.word == "" || b.place&onLocks == 0 || !d.app.offers(b) || strings.Contains(foot, b.label+" "+b.word),
					"%q is not in %q", b.word, foot)
			}
			for _, st := range []keyspace.State{keyspace.Held, keyspace.ReadHeld, keyspace.WriteHeld, keyspace.Free, keyspace.Waiting, keyspace.Stuck, keyspace.Partial} {
				d.want(string(st))
			}
		},
		// At 80 columns the help wraps its texts.
		"the help shows every text completely": func(d *driver) {
			d.size(80, 24)
			text := ansi.Strip(strings.Join((&helpDialog{page: onLocks}).text(&d.app.state), "\n"))
			text = strings.Join(strings.Fields(text), " ")
			for _, b := range newKeymap(nil, nil) {
				check.True(d.t, strings.Contains(text, strings.Join(strings.Fields(b.help), " ")),
					"the help of %s is cut: %s", b.label, b.help)
			}
		},
		"help scrolls in a small window": func(d *driver) {
			d.size(60, 12).press("?").want("locks").wantNot("states")
			for range 150 {
				d.press("j")
			}
			d.want("states").press("k").press("esc").wantNot("everywhere")
		},
		"a long command is visible at the cursor": func(d *driver) {
			d.size(80, 24).press(":").enter("lock jobs:" + strings.Repeat("a long path to/", 6) + "invoice").want("to/invoice")
			d.press("home").want(":lock jobs").press("end").want("to/invoice")
		},
		"up and down bring back commands": func(d *driver) {
			for _, text := range []string{"page load", "every 2s", "page load"} {
				d.press(":").enter(text).press("enter")
			}
			d.press(":", "up").want(":page load").press("up").want(":every 2s").press("up").want(":every 2s")
			d.press("down").want(":page load").press("down").wantNot(":page load", ":every")
			d.press("down", "up", "up").enter("50ms").want(":every 2s50ms").press("esc")
			d.press("/", "up").wantNot("page load").press("esc")
		},
		"privacy hides all names": func(d *driver) {
			d.app.privacy.salt = [16]byte{} // a random hash may contain 4711
			for _, page := range []string{"1", "2", "5", "6"} {
				d.press(page, "/").enter("nightly").press("enter")
			}
			d.press("p").size(160, 45)
			for _, page := range []string{"1", "2", "5", "6"} {
				d.press(page).want("/(hidden)").wantNot("nightly").press("esc")
			}
			for _, keys := range [][]string{{"1", "w"}, {"enter"}, {"2"}, {"4"}, {"5"}, {"6"}} {
				d.press(keys...)
				d.app.notice = notice{}
				d.wantNot("4711", "pay-7", "nightly", "cron-2", "api-", "catalog", "東京", "worker", "mail", "6379", "8743c9c0")
			}
		},
		// The smallest windows show one line for each lock, which is selected, and which has a finding.
		"a small window shows selection and findings": func(d *driver) {
			d.size(40, 10).want("▌▲ job:nightly", "cron-2", "never", "13.2 s").wantNot("OWNER").press("j").want(" ▲ job:nightly", "▌● lock:orders")
			d.size(20, 6).want("never").size(1, 1).press("k")
			check.True(d.t, d.screen() == "▲", "one cell shows %q", d.screen())
		},
		// A click on a key of the last line presses it. A message there only goes away.
		"the keys of the last line take clicks": func(d *driver) {
			d.click("/ filter").want("8 of 8").press("esc").press("1").click("? help").want("any other key closes").press("esc")
			d.press("1").click("Enter open").want("newest first").press("esc")
			d.press("K").want("K does nothing").click("K does nothing").wantNot("K does nothing").want("? help")
		},
		// A snoozed finding does not count in the header or in the order of the locks. It stays in the list with the
		// time when the snooze ends, and then counts again.
		"a snoozed finding is hidden until the snooze ends": func(d *driver) {
			first := func() string { return d.rows()[0] }
			d.want("2 findings")
			check.Require(d.t, strings.Contains(first(), "job:nightly"), "the first lock is %q", first())
			d.press("5").want("▲ 1 critical").press("z").want("1 finding ", "1 snoozed", "snoozed, back in 1 h 00: Held for 3 h 12 without a deadline")
			check.False(d.t, strings.Contains(d.line("▌"), "snoozed"), "the selected line: %s", d.line("▌"))
			d.wantLine("▌", "the limit is 10 m").press("z").want("0 findings", "2 snoozed")
			d.press("1").want("no findings", "2 snoozed")
			line := first()
			check.True(d.t, !strings.Contains(line, "job:nightly") && !strings.Contains(line, "▲"), "the first lock is still %q", line)
			d.press("5", "home", "z").want("1 snoozed", "1 finding ").press("home", "z").want("2 snoozed")
			d.press(":").enter("snooze 2s").press("enter").want("z snoozes for 2 s")
			d.press("home", "z", "home", "z").wait(3*time.Second).want("▲ 1 critical", "1 snoozed")
			time.Sleep(time.Hour - time.Minute) // the screen takes no snapshots
			d.wait(time.Minute).want("job:nightly").wantNot("snoozed")
		},
		"the locks with findings can be filtered": func(d *driver) {
			d.press("/").enter("finding").want("1 of 8", "job:nightly").wantNot("rw:catalog")
			d.press("ctrl+u").enter("!finding").want("7 of 8").press("ctrl+u").enter("never-exp").want("1 of 8")
		},
		"a paused page says that the stored value is newer": func(d *driver) {
			d.size(100, 60).press("j", "enter", " ").wait(5*time.Second).want("stored as", " s later ─").press(" ").wait(time.Second).want(" s ago ─")
		},
		"a wide window shows the lock beside the table": func(d *driver) {
			d.size(160, 55).wait(2*tickInterval).wantLine("▌", "job:nightly", "── now ──")
			d.want("stored as").press("j").wait(2*tickInterval).want("── lock:orders:4711 ──", "holder = 3")
			d.press("v").wantNot("stored as").press("v").size(159, 55).wantNot("stored as")
		},
		"the selection moves on when it is filtered out": func(d *driver) {
			d.want("── job:nightly").press("/").enter("rw:").wantNot("not held now").want("▌")
		},
		"the filter line can be edited": func(d *driver) {
			d.press("/").enter("lock orders").press("ctrl+w").enter("x").press("backspace", "backspace")
			d.want("/lock").press("home", "delete", "right", "left").enter("L").want("/Lock").press("end", "ctrl+u").want("8 of 8")
			d.enter("rw").press("enter").want("2 of 8").press("/").enter("zzz").want("0 of 8").press("esc").want("2 of 8")
		},
		"a lock that a filter found stays selected": func(d *driver) {
			d.press("/").enter("sku9").press("enter", "esc").wantNot("1 of 8").wantLine("▌", "sku9")
		},
		"a screen without --write says so": func(d *driver) { d.want("READ-ONLY").press("x").want("--write") },
		// The menu, the titles and :sort have the same words.
		"every column sorts in both directions": func(d *driver) {
			d.app.config.Finder = &fakeFinder{}
			d.size(200, 45).press("w")
			menu := d.app.locks().sortMenu()
			check.True(d.t, slices.Equal(mapped(menu.choices, func(c choice) string { return c.label }), orders()), "the menu is %v", menu.choices)
			for _, c := range menu.choices {
				d.press("s").press(c.key)
				line := d.line("order: ")
				first := d.rows()
				d.press("s", c.key)
				back := d.rows()
				check.True(d.t, back[0] == first[len(first)-1],
					"%s: turned round, %q comes first, not %q", line, back[0], first[len(first)-1])
				if c.label != severityOrder {
					d.want(strings.ToUpper(c.label)).want("order: by " + c.label)
				}
			}
			d.press("s", menu.choices[len(menu.choices)-1].key, "w")
			check.Equal(d.t, d.app.locks().orderText(), "worst first", "without the column that it was by, the order is")
		},
	} {
		t.Run(name, func(t *testing.T) { drive(t, testConfig(), play) })
	}
}

// The second key goes to the page that the first one opens, and its effect stays.
func TestAKeyReachesThePageThatTheKeyBeforeItOpens(t *testing.T) {
	w := testConfig()
	w.Load, w.Scenes = &fakeLoad{}, scenes()
	drive(t, w, func(d *driver) {
		d.press("m").want("Choose a scene")
		d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("a1")})
		check.Equal(t, d.settle().app.place(), onLocks, "a scene and 1 lead to")
		d.deliver(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(":page load")})
		d.deliver(tea.KeyMsg{Type: tea.KeyEnter})
		d.deliver(keyNamed("5"))
		check.Equal(t, d.settle().app.place(), onFindings, ":page load and 5 lead to")
		d.press("1").deliver(tea.KeyMsg{Type: tea.KeyEnter})
		d.deliver(keyNamed("esc"))
		check.Equal(t, d.settle().app.place(), onLocks, "Enter and Esc lead to")
	})
}

func TestAKeyThatCannotBeUsedSaysWhy(t *testing.T) {
	alone := testConfig()
	alone.Load = nil
	drive(t, alone, func(d *driver) {
		d.press("X").want("X does nothing; ? shows the keys").press("]").want("it works on: timeline")
		d.wait(5*time.Second).wantNot("does nothing").press("3").want("no load on this server", "locktop demo")
		for _, k := range []string{"s", "+", "-"} {
			d.press(k).want("no load here").wait(5 * time.Second)
		}
		d.press("1").size(60, 10).press("v").want("no room for a preview")
	})
	drive(t, Config{Source: &fakeServer{}}, func(d *driver) {
		d.press("j").want("no locks to move among").want("no locks among 1,204 keys", "locktop demo")
	})
}

// keysPage returns docs/keys.md, made from the tables of keys and commands.
func keysPage() string {
	var b strings.Builder
	b.WriteString("# Keys\n\nMade from the tables in `tui/keys.go` and `tui/commands.go`; `go test ./tui -run Page -update` makes it again.\n" +
		"`keys:` in the configuration gives an action other keys: see [the configuration](operators.md#the-configuration).\n")
	section := func(title string, wanted func(pageSet) bool) {
		fmt.Fprintf(&b, "\n## %s\n\n| key | action | what it does |\n| --- | --- | --- |\n", title)
		for _, k := range newKeymap(nil, nil) {
			if wanted(k.place) {
				var actions []string
				for _, s := range k.actions {
					actions = append(actions, "`"+string(s.action)+"`")
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.label, strings.Join(actions, " "), strings.ReplaceAll(k.help, "|", "\\|"))
			}
		}
	}
	section("Everywhere", func(p pageSet) bool { return p == anywhere })
	section("In lists", func(p pageSet) bool { return p == onLists })
	for _, at := range allPages() {
		section(strings.ToUpper(at.String()[:1])+at.String()[1:], func(p pageSet) bool { return p&at != 0 && p != anywhere && p != onLists })
	}
	b.WriteString("\n## Mouse\n\n| mouse | what it does |\n| --- | --- |\n")
	for _, m := range mouseHelp() {
		fmt.Fprintf(&b, "| %s | %s |\n", m.what, m.does)
	}
	b.WriteString("\n## Words on the screen\n\n| word | what it means |\n| --- | --- |\n")
	for _, m := range wordHelp() {
		fmt.Fprintf(&b, "| %s | %s |\n", m.what, m.does)
	}
	b.WriteString("\n## Commands, after `:`\n\n| command | what it does |\n| --- | --- |\n")
	for _, v := range commandSpecs() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.TrimSpace(v.name+" "+v.arg), v.help)
	}
	return b.String()
}

func TestThePageOfKeysIsUpToDate(t *testing.T) { golden.Check(t, "../../docs/keys.md", keysPage()) }

// uniqueWord is a word that only one page shows.
var uniqueWord = map[pageSet]string{
	onLocks: "OWNER", onTimeline: "free, with waiters", onLoad: "settings", onNodes: "SHARE", onFindings: "what to do", onEvents: "WHO", onLock: "newest first",
}

// everywhereKeyTests returns the tests of the keys that do the same on every page, once for each page.
func everywhereKeyTests() []keyTest {
	var all []keyTest
	tell := func(at pageSet, key string, play func(d *driver)) { all = append(all, keyTest{at, key, play}) }
	numbered := []pageSet{onLocks, onTimeline, onLoad, onNodes, onFindings, onEvents}
	for i, at := range append(numbered, onLock) {
		tell(at, "?", func(d *driver) { d.press("?").want("everywhere").press("?").wantNot("everywhere", "show or hide this") })
		tell(at, "f1", func(d *driver) { d.press("f1").want("everywhere") })
		for _, key := range []string{"ctrl+r", "f5"} {
			tell(at, key, func(d *driver) {
				scans := 0
				d.press(key).want("only a server can be scanned again")
				d.app.config.Rescan = func() { scans++ }
				d.press(key).want("scanning all keys, without the limit of --budget")
				d.app.config.Production = true
				d.press(key).want("scan all keys of", " now?").press("esc", key, "y").want("scanning all keys")
				check.Equal(d.t, scans, 2, "scans")
			})
		}
		tell(at, "ctrl+l", func(d *driver) { check.True(d.t, d.press("ctrl+l").app.repaint, "the screen was not drawn again") })
		tell(at, "q", func(d *driver) {
			if at != onLocks {
				d.press("q").want(uniqueWord[onLocks])
			}
			d.press("q")
			wantQuit(d)
		})
		tell(at, "Q", func(d *driver) {
			d.press("Q")
			wantQuit(d)
			check.True(d.t, d.app.leave, "the frame does not stay")
		})
		tell(at, "ctrl+c", func(d *driver) {
			d.press(":", "ctrl+c")
			wantQuit(d)
			check.True(d.t, d.app.interrupted, "Ctrl-C is no interrupt")
		})
		tell(at, "ctrl+z", func(d *driver) { check.True(d.t, d.press("ctrl+z").suspended, "the program was not suspended") })
		for n, to := range numbered {
			tell(at, string(rune('1'+n)), func(d *driver) { d.press(string(rune('1' + n))).want(uniqueWord[to]) })
		}
		home := min(i, len(numbered)-1) // Tab continues from the page where the lock was opened
		if at == onLock {
			home = 0
		}
		next, previous := numbered[(home+1)%len(numbered)], numbered[(home+len(numbered)-1)%len(numbered)]
		tell(at, "tab", func(d *driver) { d.press("tab").want(uniqueWord[next]) })
		tell(at, "shift+tab", func(d *driver) { d.press("shift+tab").want(uniqueWord[previous]) })
		tell(at, " ", func(d *driver) { d.press(" ").want("PAUSED 00:00").press(" ").want("● live") })
		for _, key := range []string{"<", ","} {
			tell(at, key, func(d *driver) {
				d.wait(2 * rewindStep).press(key).want("showing 00:00:01").press("F").want("● live")
			})
		}
		for _, key := range []string{">", "."} {
			tell(at, key, func(d *driver) {
				d.wait(3*rewindStep).press("<", "<").want("showing 00:00:01").press(key).want("showing 00:00:02").press(key).want("● live")
				d.press(key).want("this is now")
			})
		}
		tell(at, "F", func(d *driver) { d.press(" ").want("PAUSED").press("F").want("● live") })
		tell(at, ":", func(d *driver) { d.press(":").enter("pa").press("tab").enter("eve").press("tab", "enter").want("WHO") })
		tell(at, "m", func(d *driver) { d.press("m").want("no scenes here") })
		tell(at, "p", func(d *driver) {
			d.press("p").want("keys and owners are hashed").press("p").want("keys and owners are shown")
		})
		tell(at, "ctrl+s", func(d *driver) {
			d.press("ctrl+s").want("save this frame").press("t").want("saved as /tmp/frame.txt")
			check.True(d.t, strings.Contains(string(d.saved), uniqueWord[at]) && !strings.Contains(string(d.saved), "save this frame"),
				"what was saved is not the frame:\n%s", d.saved)
		})
		tell(at, "esc", func(d *driver) { d.press(" ", "esc").wantNot("PAUSED 00:01") })
	}
	return all
}

func TestPrivacyReplacesTheLongerOfTwoNamesFirst(t *testing.T) {
	m := redactions{"10.0.0.1:6379": "node-a", "": "nobody", "10.0.0.1:63790": "node-b"}
	got, want := m.apply("10.0.0.1:63790 is ahead of 10.0.0.1:6379"), "node-b is ahead of node-a"
	check.True(t, got == want, "got %q, want %q", got, want)
}

// Footer, help, notices and remedies name a key of the configuration, and only that key works.
func TestAChangedKeyIsNamedAndWorksEverywhere(t *testing.T) {
	w := testConfig()
	w.Keys = map[string]string{"release": "ctrl+x X", "help": "f2", "live": "alt+l", "copy": "c", "page-down": "space", "pause": "P", "open": "O"}
	check.NoError(t, CheckKeys(w.Keys, nil))
	drive(t, w, func(d *driver) {
		d.size(200, 95).want("F2 help", "c copy").wantNot("? help", "y copy")
		d.press("x").want("x does nothing; F2 shows the keys")
		d.press("ctrl+x").want("c copies an exact command").press("X").want("c copies an exact command")
		d.press("?").want("? does nothing").press("f2").want("^X", "alt+l").press("esc")
		d.press("y").want("does nothing").press("c").want("copy from job:nightly").press("esc")
		d.press("P").want("PAUSED").press("alt+l").wantNot("PAUSED")
		d.press("1", "enter").want("enter does nothing").press("O").want("newest first", "c to copy")
	})
}

func TestRemediesNameKeysOfTheScreen(t *testing.T) {
	keys := newKeymap(map[string]string{"release": "f9", "copy": "f8"}, nil)
	for _, p := range keyspace.FindingProblems() {
		got, acts := keys.remedy(keyspace.Finding{Problem: p}), strings.Contains(p.Remedy, "{deadline}") || strings.Contains(p.Remedy, "{release}")
		check.True(t, got != keys.named(p.Remedy) == strings.Contains(p.Remedy, "{") && !strings.Contains(got, "locktop ") && strings.Contains(got, "F9") == acts, "%s", got)
	}
}

func TestAKeyOfTheConfigurationThatCannotWorkIsAnError(t *testing.T) {
	logs := RowCommand{"K", "pod log", []string{"kubectl", "logs", "{host}"}}
	for name, c := range map[string]struct {
		keys     map[string]string
		commands []RowCommand
		action   string
		said     string
	}{
		"in order":         {map[string]string{"release": "ctrl+x", "quit": "q ctrl+c", "earlier": "right", "later": "left"}, []RowCommand{logs}, "", ""},
		"an action":        {map[string]string{"relase": "X"}, nil, "relase", `there is no action "relase"`},
		"a key":            {map[string]string{"release": "ctrl+1"}, nil, "release", `release: "ctrl+1" is not a key`},
		"no key":           {map[string]string{"release": " "}, nil, "release", "release: it needs a key"},
		"a reserved key":   {map[string]string{"release": "ctrl+c"}, nil, "release", "ctrl+c always quits"},
		"a clash":          {map[string]string{"release": "y"}, nil, "release", "y is a key of release and of copy on the page locks"},
		"a clash on pages": {map[string]string{"zoom-in": "left"}, nil, "zoom-in", "left is a key of zoom-in and of earlier on the page timeline"},
		"a command":        {nil, []RowCommand{{"x", "a", []string{"b"}}}, "", "x is a key of release and of command a on the page locks"},
		"two commands":     {nil, []RowCommand{logs, logs}, "", `two commands have the name "pod log"`},
		"no program":       {nil, []RowCommand{{"K", "a", nil}}, "", "run: it needs a program"},
		"from Redis":       {nil, []RowCommand{{"K", "a", []string{"{key}"}}}, "", "run: the program must not come from Redis"},
		"a placeholder":    {nil, []RowCommand{{"K", "a", []string{"b", "-n={pod}"}}}, "", "run: there is no {pod}; there are {key} {owner}"},
		"a command's key":  {nil, []RowCommand{{"hyper+x", "a", []string{"b"}}}, "", `key: "hyper+x" is not a key`},
	} {
		err := CheckKeys(c.keys, c.commands)
		if c.said == "" {
			check.True(t, err == nil, "%s: %v", name, err)
			continue
		}
		if e, ok := errors.AsType[*KeyError](err); !ok || e.Action != c.action || !strings.Contains(e.Error(), c.said) || e.Action == "" && e.Command != len(c.commands)-1 {
			t.Errorf("%s: %+v, want %s", name, err, c.said)
		}
	}
}

// The values come from Redis: a value is one argument, and never a flag.
func TestACommandRunsWithTheValuesOfTheSelectedLock(t *testing.T) {
	server := &fakeServer{locks: []keyspace.Lock{
		{Key: "a; rm -rf $HOME", Format: "f", Node: "10.0.0.1:6379", DB: 2, Holders: []keyspace.Holder{{ID: "tok", Label: "web-1.prod:4711", Addr: "10.0.0.9:5000", Depth: 1}}},
		{Key: "plain", Format: "f", Holders: []keyspace.Holder{{ID: "tok", Depth: 1}}},
		{Key: "--all", Format: "f", Holders: []keyspace.Holder{{ID: "-rf", Depth: 1}}},
	}}
	var ran [][]string
	run := func(_ context.Context, args []string) tea.ExecCommand { ran = append(ran, args); return nil }
	w := Config{Source: server, Runner: run, Commands: []RowCommand{
		{"K", "all", []string{"p", "-n", "{key}", "x={owner}", "{token}", "{host}", "{pid}", "{client}", "{format}", "{node}", "{db}"}},
		{"alt+k", "key", []string{"p", "{key}"}},
		{"ctrl+k", "flag", []string{"p", "--name={key}"}},
	}}
	check.NoError(t, CheckKeys(nil, w.Commands))
	drive(t, w, func(d *driver) {
		d.size(140, 30).want("K all", "^K flag").press(":").enter("lock a; rm -rf $HOME").press("enter", "K")
		want := []string{"p", "-n", "a; rm -rf $HOME", "x=web-1.prod:4711", "tok", "web-1.prod", "4711", "10.0.0.9:5000", "f", "10.0.0.1:6379", "2"}
		check.True(t, len(ran) == 1 && slices.Equal(ran[0], want), "ran %q, want %q", ran, want)
		d.press(":").enter("lock plain").press("enter", "K").want("all: this lock has no {host}")
		d.press(":").enter("lock --all").press("enter", "alt+k").want("key: the value of {key} begins with - and would be a flag")
		check.True(t, len(ran) == 1, "it ran %q", ran[1:])
		d.press("ctrl+k")
		check.True(t, len(ran) == 2 && ran[1][1] == "--name=--all", "ran %q", ran)
		d.deliver(reply(func(a *app) tea.Cmd { return a.onProgram("flag", errors.New("exit status 1")) }))
		d.want("flag: exit status 1").press("2", "K").want("it works on: locks, one lock, findings")
	})
}

// click clicks on the first text of the screen that is this one.
func (d *driver) click(text string) *driver {
	d.t.Helper()
	above, _, found := strings.Cut(d.screen(), text)
	check.Require(d.t, found, "no %q on the screen:\n%s", text, d.screen())
	x := ansi.StringWidth(above[strings.LastIndexByte(above, '\n')+1:]) + 1
	d.deliver(tea.MouseMsg{X: x, Y: strings.Count(above, "\n"), Action: tea.MouseActionPress, Button: tea.MouseButtonLeft})
	return d.settle()
}

func TestASecondClickOpensARow(t *testing.T) {
	w := testConfig()
	drive(t, w, func(d *driver) {
		d.click("lock:orders").want("▌  lock:orders").click("rw:catalog").want("▌  rw:catalog").wantNot("newest first")
		d.click("rw:catalog").want("newest first", "rw:catalog").press("esc")
		d.press("2").click("rw:index").click("rw:index").want("newest first").press("esc")
		d.press("6").click("fair:mail").wantNot("newest first").click("fair:mail").want("newest first").press("esc")
		d.press("3").click(" keys ").want("▌keys").click("▌keys").want("keys: ").press("esc")
		d.press("1").size(40, 10).click("rw:index").click("rw:index").want("time left")
	})
	drive(t, w, func(d *driver) {
		d.click("job:nightly").wantNot("newest first").press("?", "pgdown", "pgdown", "pgdown", "pgdown").want("second click")
	})
}

// The header shows the names of the pages if there is room, and the server in any case.
func TestTheHeaderUsesItsRoom(t *testing.T) {
	w, _ := writeConfig()
	w.Production = true
	drive(t, w, func(d *driver) {
		for width := 66; width <= 200; width += 2 {
			line, _, _ := strings.Cut(d.size(width, 24).screen(), "\n")
			check.True(t, strings.Contains(line, " 127.0.0") && strings.Contains(line, "PRODUCTION"), "at %d columns it is %q", width, line)
			check.True(t, strings.Contains(line, "Timeline") == (width >= 80) && strings.Contains(line, "2 Timeline") == (width >= 106), "at %d columns it is %q", width, line)
		}
	})
	r := recorded(t)
	first, final := r.Span()
	p := &fakePlayer{reader: r, playing: PlaybackState{At: first, First: first, Last: final, Speed: 1}}
	drive(t, Config{Source: p, Player: p, Title: "office.lockrec"}, func(d *driver) { d.size(120, 24).want("2 Timeline", "6 Events", "REPLAY") })
}
