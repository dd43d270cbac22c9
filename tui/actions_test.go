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

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// fakeExecutor records the actions that it was asked for.
type fakeExecutor struct {
	done   []string
	record keyspace.AuditRecord
	err    error
	found  string

	refused string
}

func (b *fakeExecutor) Act(_ context.Context, act keyspace.Action, l keyspace.Lock, ttl time.Duration) (keyspace.AuditRecord, error) {
	if b.err == nil {
		done := string(act) + " " + l.Key
		if ttl != defaultTTL && ttl != 0 {
			done += " " + ttl.String()
		}
		b.done = append(b.done, done)
	}
	return b.record, b.err
}

func (b *fakeExecutor) Refused(context.Context) string { return b.refused }

func (b *fakeExecutor) Recheck(context.Context, keyspace.AuditRecord, keyspace.Lock) (keyspace.Outcome, string, error) {
	return keyspace.Gone, b.found, nil
}

// actionFormats returns formats with actions.
func actionFormats() []keyspace.Format {
	key := func(l keyspace.Lock) []string { return []string{l.Key} }
	seen := func(l keyspace.Lock) []string { return []string{l.Holders[0].ID} }
	var all []keyspace.Format
	for _, name := range []string{"set-nx", "redisson"} {
		all = append(all, keyspace.Format{About: keyspace.About{Name: name, Library: name}, Actions: &keyspace.Actions{Keys: key, Args: seen, ForceRelease: "return 1", Extend: "return 2"}})
	}
	return append(all, keyspace.Format{About: keyspace.About{Name: "redisson-rw", Library: "Redisson"}})
}

// writeConfig returns a Config in which locks can be force-released.
func writeConfig() (Config, *fakeExecutor) {
	w, b := testConfig(), &fakeExecutor{}
	w.Executor, w.Formats = b, actionFormats()
	return w, b
}

func (b *fakeExecutor) want(t *testing.T, acts ...string) {
	t.Helper()
	got := strings.Join(b.done, ", ")
	check.True(t, got == strings.Join(acts, ", "), "done is %q, want %q", got, acts)
}

// holderExecutor records the holders whose holds are released.
type holderExecutor struct {
	*fakeExecutor
	released []string
}

func (b *holderExecutor) Act(ctx context.Context, act keyspace.Action, l keyspace.Lock, ttl time.Duration) (keyspace.AuditRecord, error) {
	for _, h := range l.Holders {
		b.released = append(b.released, h.ID)
	}
	return b.fakeExecutor.Act(ctx, act, l, ttl)
}

func TestOneHoldOfASemaphoreCanBeReleased(t *testing.T) {
	gpu := mutex("gpu:0", "web-1", time.Minute)
	gpu.Kind, gpu.Limit = keyspace.Semaphore, 2
	gpu.Holders = append(gpu.Holders, keyspace.Holder{ID: "web-2", Depth: 1, Expires: after(20 * time.Second)})
	for keys, want := range map[string]string{"c": "web-2", "a": "web-1 web-2", "b": "web-1"} {
		w, fake := writeConfig()
		executor := &holderExecutor{fakeExecutor: fake}
		w.Executor, w.Source = executor, holding(gpu)
		drive(t, w, func(d *driver) {
			d.press("x").want("end one hold or all 2").press("r").want("release which hold of gpu:0", "hold 1", "web-1 · held", "hold 2", "web-2 · ")
			d.press(keys)
			if keys == "c" {
				d.want("its holder (web-2) will still believe", "It would end by itself in 19.").wantNot("web-1)")
			}
			d.press("y").wait(tickInterval)
			check.Equal(t, strings.Join(executor.released, " "), want, "%s released the holds of", keys)
		})
	}
	w, _ := writeConfig()
	drive(t, w, func(d *driver) { d.press("x", "r").want("release job:nightly?") }) // one holder: no further question
}

// renewed returns the lock "a", renewed n times with the last time at a time.
func renewed(n int, last time.Time) keyspace.Lock {
	l := mutex("a", "web-1", last.Sub(midnight)+9*time.Second)
	l.Renewals, l.Renewed, l.RenewedEvery = n, last, 3*time.Second
	return l
}

// says checks texts that the screen shows, wrapped or not.
func says(d *driver, texts ...string) {
	d.t.Helper()
	screen := strings.Join(strings.Fields(d.screen()), " ")
	for _, text := range texts {
		check.Require(d.t, strings.Contains(screen, text), "no %q on the screen:\n%s", text, d.screen())
	}
}

func TestTheQuestionSaysWhatIsTrueNow(t *testing.T) {
	w, b := writeConfig()
	w.Every = tickInterval
	v := holding(renewed(9, midnight))
	w.Source = v
	drive(t, w, func(d *driver) {
		d.size(80, 24).wait(time.Second).press("x", "r")
		says(d, "It will not end by itself: it was renewed 9 times, the last time 1.", "is alive. Stop the holder first")
		d.wait(time.Second)
		says(d, "renewed 9 times, the last time 2.")
		v.locks[0] = renewed(10, after(2*time.Second))
		d.wait(time.Second)
		says(d, "will not end by itself: it was renewed 10 times, the last time 1.")
		d.wait(4 * time.Second)
		says(d, "Its renewals stopped 5.", "(were every 3.0 s)")
		v.locks[0] = mutex("a", "web-2", time.Minute)
		d.wait(time.Second).want("a: the hold has ended, the lock is now held by web-2").wantNot("will still", "redis-cli")
		d.press("y").want("nothing was changed: a: the hold has ended")
		v.locks[0] = renewed(11, time.Now())
		d.wait(time.Second).press("x", "r")
		v.locks = nil
		d.wait(time.Second).want("locktop does not see the hold any more").press("y").want("nothing was changed")
		b.want(t)
	})
}

// An extension starts at the deadline of now, not at that of the key press.
func TestAnExtensionBeginsAtTheDeadlineOfNow(t *testing.T) {
	w, b := writeConfig()
	w.Every = tickInterval
	v := holding(renewed(9, midnight))
	w.Source = v
	drive(t, w, func(d *driver) {
		d.press("x", "e", "+").wait(time.Second)
		v.locks[0] = renewed(10, after(20*time.Second))
		d.wait(time.Second)
		says(d, "ends at 00:00:29 (in 2", "00:00:39", "The next renewal undoes it", "renewed 10 times")
		d.press("y")
		check.True(t, len(b.done) == 1 && strings.HasPrefix(b.done[0], "extend a 36."), "done is %q: not 10 s after the deadline of now", b.done)
	})
}

// A question is about now, also if the list was paused.
func TestTheQuestionEndsAPause(t *testing.T) {
	w, _ := writeConfig()
	drive(t, w, func(d *driver) {
		d.press(" ").want("PAUSED").press("x", "r").want("release job:nightly?").wantNot("PAUSED")
	})
}

func TestATagBelongsToAHold(t *testing.T) {
	w, b := writeConfig()
	w.Every = tickInterval
	v := holding(mutex("a", "web-1", time.Minute), mutex("b", "web-1", time.Minute), mutex("c", "web-1", time.Minute))
	w.Source = v
	drive(t, w, func(d *driver) {
		d.press("t", "t", "t").want("3 tagged")
		v.locks[0] = mutex("a", "web-2", time.Minute)
		again := mutex("b", "web-1", time.Minute)
		again.Holders[0].Since = after(0) // released, and acquired again with one token
		v.locks[1] = again
		d.wait(time.Second).want("1 tagged").press("home", "x").want("act on c, which is tagged")
		d.press("r", "y").wantNot("tagged")
		b.want(t, "release c")
		d.press("home", "t").want("1 tagged")
		b.err = errors.New("no answer")
		d.press("x", "r", "y").want("no answer").wantNot("tagged")
	})
}

func TestOnlyYConfirmsAnAction(t *testing.T) {
	for _, answer := range []string{"enter", "esc", "b", "x", "n", " ", "q"} {
		w, b := writeConfig()
		drive(t, w, func(d *driver) {
			d.press("j", "x", "r").want("release lock:orders:4711?", "11 waiters can acquire it", "its holder (pay-7:52) will still believe", "end by itself in 13.2 s")
			d.press(answer).want("nothing was changed").wantNot("release lock:orders:4711?")
			b.want(t)
			check.False(t, d.quit, "%s quit the program", answer)
		})
	}
	w, b := writeConfig()
	drive(t, w, func(d *driver) {
		d.press("j", "x", "r", "y").want("released lock:orders:4711")
		b.want(t, "release lock:orders:4711")
	})
}

func TestActions(t *testing.T) {
	for name, play := range map[string]func(d *driver, b *fakeExecutor){
		"the least dangerous action is first": func(d *driver, b *fakeExecutor) {
			d.press("x").wantOrder("act on job:nightly", "set a deadline", "release it")
			d.press("d").want("even while its holder (cron-2) still works").press("y").want("set a deadline of 30 s for job:nightly; no undo: no command removes it; x e moves it later")
			b.want(d.t, "expire job:nightly")
			d.press("x", "e").want("it has no deadline; d sets one")
			d.press("esc", "j", "x", "d").want("it has a TTL already; e extends it")
		},
		"tagged locks are acted on one by one": func(d *driver, b *fakeExecutor) {
			d.press("t", "t", "x").want("act on 2 tagged locks").press("r", "y")
			b.want(d.t, "release job:nightly", "release lock:orders:4711")
		},
		"an action applies to the tagged locks that allow it": func(d *driver, b *fakeExecutor) {
			d.press("t", "t", "x").want("act on 2 tagged locks", "1 of 2; lock:orders:4711: it has a TTL already; e extends it")
			d.press("d").want("set a deadline for job:nightly?").press("y")
			b.want(d.t, "expire job:nightly")
			d.want("1 tagged").press("home", "x").want("act on lock:orders:4711, which is tagged").press("d").want("it has a TTL already; e extends it")
		},
		// The answer is n unless y is pressed. The way back needs no question.
		":write lets the screen act, and only read": func(d *driver, b *fakeExecutor) {
			d.app.config.Writer = func(_ context.Context, on bool) (Executor, error) {
				if !on {
					return nil, nil
				}
				return b, b.err
			}
			write := func(keys ...string) *driver { return d.press(":").enter("write").press("enter").press(keys...) }
			write().want("this screen only reads", "READ-ONLY").press("x").want(":write lets it act")
			write().want("may this screen act on the locks of").press("enter").want("READ-ONLY")
			b.err = errors.New("the context prod is read-only")
			write("y").want("the context prod is read-only", "READ-ONLY")
			b.err, b.refused = nil, "the user me may not run EVAL"
			write("y").want("this screen may act", "WRITE (cannot act)").press("x").want("the user me may not run EVAL").wantNot("release it")
			write()
			b.refused = ""
			write("y").want(" WRITE ").press("x").want("release it")
		},
		"a deadline is chosen": func(d *driver, b *fakeExecutor) {
			d.press("x", "d").want("ends in 30 s").press("+").want("ends in 1 m,").press("-", "-").want("ends in 10 s", "10000")
			d.press("-", "-", "-").want("ends in 5 s").press("+", "+", "+", "y").want("set a deadline of 1 m for job:nightly")
			b.want(d.t, "expire job:nightly 1m0s")
			d.press("x", "r").wantNot("longer, shorter").press("+", "y")
			b.want(d.t, "expire job:nightly 1m0s", "release job:nightly")
		},
		// An extend adds to the deadline. The question names the deadline before and after.
		"an extend adds to the deadline": func(d *driver, b *fakeExecutor) {
			d.press("j", "x", "e").want("extend lock:orders:4711?", "stays with its holder (pay-7:52)", "(in 13.2 s) → ", "(in 27.2 s), as long again as its lease", "11 waiters wait longer")
			d.press("+").want("(in 43.2 s), 30 s later").press("-", "-", "-").want("(in 18.2 s), 5 s later").press("+", "y").want("extended lock:orders:4711")
			b.want(d.t, "extend lock:orders:4711 23.25s")
		},
		"a lock of a format without actions cannot be changed": func(d *driver, _ *fakeExecutor) {
			d.press("j", "j", "x", "r").want("cannot be changed from outside")
		},
		"a menu handles the mouse": func(d *driver, _ *fakeExecutor) {
			for _, size := range [][2]int{{80, 24}, {120, 40}, {80, 4}} {
				d.size(size[0], size[1]).press("home", "j", "x", "up", "down")
				d.deliver(tea.MouseMsg{Button: tea.MouseButtonWheelDown})
				d.deliver(tea.MouseMsg{Button: tea.MouseButtonLeft, Action: tea.MouseActionPress, Y: 0})
				for y, line := range strings.Split(d.screen(), "\n") {
					if strings.Contains(line, "extend it") {
						d.deliver(tea.MouseMsg{Button: tea.MouseButtonLeft, Action: tea.MouseActionPress, X: 5, Y: y})
						break
					}
				}
				d.settle()
				_, asked := d.app.dialog.(*confirmDialog)
				check.True(d.t, asked, "%v: a click on a choice opened %T\n%s", size, d.app.dialog, d.screen())
				d.press("esc")
			}
		},
		"the copy menu shows the command": func(d *driver, _ *fakeExecutor) {
			d.size(80, 40).press("/").enter("orders").press("enter", "y", "up")
			command, _ := d.app.config.exactCommand(keyspace.ForceRelease, d.app.locks().last, defaultTTL)
			for _, part := range widget.Chunk(command, 80-margin-1) {
				d.want(strings.TrimSpace(part))
			}
			longScript(&d.app.config)
			d.size(80, 24).press("esc", "y", "up").want("more lines")
			d.press("esc", "p", "y", "up").wantNot("redis-cli")
		},
		"a lock that has changed is left as it is": func(d *driver, b *fakeExecutor) {
			b.err = &keyspace.ChangedError{Key: "job:nightly", Now: &keyspace.Lock{Holders: []keyspace.Holder{{ID: "cron-3"}}}}
			d.press("x", "r", "y").want("nothing was changed", "now held by cron-3")
			b.err = errors.New("audit log: disk full\x1b[2J")
			d.press("x", "r", "y").want(`disk full\x1b[2J`)
		},
		"the past cannot be changed": func(d *driver, b *fakeExecutor) {
			d.wait(3*time.Second).press("<", "x").want("this is the past")
			b.want(d.t)
		},
		"the question names five of many locks": func(d *driver, b *fakeExecutor) {
			source := d.app.config.Source.(*fakeServer)
			for i := range 4 {
				l := source.locks[3]
				l.Key = fmt.Sprint("job:", i)
				source.locks = append(source.locks, l)
			}
			d.wait(2 * tickInterval)
			for range source.locks {
				d.press("t")
			}
			d.press("x", "r").want("release 9 tagged locks?", "and 4 more").press("y")
			check.Equal(d.t, len(b.done), 9, "locks that are released")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := writeConfig()
			drive(t, w, func(d *driver) { play(d, b) })
		})
	}
}

func TestAProductionServerRequiresTheTypedName(t *testing.T) {
	w, b := writeConfig()
	w.Production = true
	drive(t, w, func(d *driver) {
		d.want("PRODUCTION").press("x", "r").want("release job:nightly on redis://127.0.0.1:6379/0: type job:nightly to confirm").enter("job").press("enter").want("nothing was changed: the name typed is not job:nightly").wantNot("release job:nightly?")
		d.press("x", "r").enter("job:nightly").press("enter").want("release job:nightly?").press("enter").want("nothing was changed")
		b.want(t)
		d.press("x", "r").enter("job:nightly").press("enter", "y")
		b.want(t, "release job:nightly")
	})
}

func TestASnapshotIsRequestedRightAfterAnAction(t *testing.T) {
	w, _ := writeConfig()
	w.Every = time.Minute
	v := w.Source.(*fakeServer)
	drive(t, w, func(d *driver) {
		d.wait(time.Second)
		before := v.looks
		d.press("x", "r", "y").wait(2 * tickInterval)
		check.True(t, v.looks == before+1, "%d looks after the act", v.looks-before)
	})
}

// longScript gives a Redisson lock an action whose script does not fit into 24 lines.
func longScript(w *Config) string {
	script := "local a = {" + strings.Repeat(`redis.call("GET", KEYS[1]), `, 80) + "} return  2"
	for i := range w.Formats {
		if w.Formats[i].Name == "redisson" {
			w.Formats[i].Actions.ForceRelease = script
		}
	}
	return script
}

func TestACommandIsShownToItsEndBeforeItRuns(t *testing.T) {
	w, b := writeConfig()
	longScript(&w)
	drive(t, w, func(d *driver) {
		l := *d.app.live.locks[slices.IndexFunc(d.app.live.locks, func(l *keyspace.Lock) bool { return l.Format == "redisson" })]
		command, why := d.app.config.exactCommand(keyspace.ForceRelease, l, defaultTTL)
		check.Require(t, why == "", "%v", why)
		for _, size := range [][2]int{{80, 24}, {140, 60}} {
			d.size(size[0], size[1]).press("/").enter("orders").press("enter", "x", "r").want("release lock:orders:4711?", "leave it")
			read := map[string]bool{}
			for range 200 {
				for line := range strings.SplitSeq(d.screen(), "\n") {
					read[strings.TrimSpace(line)] = true
				}
				d.press("down")
			}
			for _, part := range widget.Chunk(command, size[0]-margin-1) {
				check.True(t, read[strings.TrimSpace(part)], "%v: cannot be read: %q\n%s", size, part, d.screen())
			}
			d.want("it is logged").press("up", "down", "esc").want("nothing was changed").press("esc")
			b.want(t)
		}
	})
}

// slowExecutor has no answer for some keys, and looks only when it may.
type slowExecutor struct {
	*fakeExecutor
	results map[string]keyspace.AuditRecord
	answers chan struct{}
}

func (b *slowExecutor) Act(_ context.Context, act keyspace.Action, l keyspace.Lock, _ time.Duration) (keyspace.AuditRecord, error) {
	r := b.results[l.Key]
	r.Action = act
	if r.Outcome == keyspace.Done {
		return r, nil
	}
	return r, errors.New("read tcp: i/o timeout")
}

func (b *slowExecutor) Recheck(ctx context.Context, r keyspace.AuditRecord, l keyspace.Lock) (keyspace.Outcome, string, error) {
	select {
	case <-b.answers:
		return keyspace.Gone, b.found, nil
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
}

// An action without an answer is not told as one that is not done. The line stays until the next look has
// found what happened.
func TestTheScreenTellsAnActionWithoutAnAnswer(t *testing.T) {
	for _, found := range []string{"it is gone; whether this action did it is not known", "it is still held: not released so far"} {
		w, fake := writeConfig()
		fake.found = found
		b := &slowExecutor{fake, map[string]keyspace.AuditRecord{"job:nightly": {Outcome: keyspace.Unanswered}}, make(chan struct{})}
		w.Executor = b
		drive(t, w, func(d *driver) {
			b.answers = make(chan struct{})
			d.press("x", "r", "y").want("job:nightly: no answer: it may or may not be released").wantNot("0 of 1")
			d.wait(time.Minute).want("it may or may not be released")
			close(b.answers)
			d.wait(tickInterval).want("job:nightly: " + found).wantNot("no answer")
			d.wait(time.Minute).want("job:nightly: " + found).press("j").wantNot(found)
		})
	}
}

// Of several locks, those without an answer are counted apart, and those that are done are counted.
func TestTheScreenCountsTheOutcomesOfTaggedLocks(t *testing.T) {
	w, fake := writeConfig()
	w.Executor = &slowExecutor{fakeExecutor: fake, results: map[string]keyspace.AuditRecord{
		"job:nightly":      {Outcome: keyspace.Done},
		"lock:orders:4711": {Outcome: keyspace.Unanswered},
		"lock:mail":        {Outcome: keyspace.Failed},
	}}
	drive(t, w, func(d *driver) {
		for range d.app.live.locks {
			d.press("t")
		}
		d.press("x", "r", "y").want("1 done, ", "1 unknown; lock:orders:4711: no answer: it may or may not be released")
	})
}

// A Redlock without a majority of answers is named with its votes, before and after the action.
func TestTheScreenNamesTheServersOfARedlockThatAreMissing(t *testing.T) {
	l := mutex("pay:lock", "pay-7:52", time.Minute)
	l.Kind, l.Votes = keyspace.Redlock, []keyspace.Vote{{Node: "a:1", Token: l.Holders[0].ID}, {Node: "b:1", Unreachable: true}, {Node: "c:1", Unreachable: true}}
	w, fake := writeConfig()
	w.Source = holding(l)
	w.Executor = &slowExecutor{fakeExecutor: fake, results: map[string]keyspace.AuditRecord{
		"pay:lock": {Outcome: keyspace.Failed, Of: 3, Unanswered: []string{"b:1", "c:1"}},
	}}
	drive(t, w, func(d *driver) {
		d.press("x", "r").want("it is on 1 of 3 servers; 2 did not answer and may have it, too: b:1, c:1")
		d.press("y").want("pay:lock: not released: 2 of 3 servers did not answer and may hold a majority")
	})
}

func TestAReplicaIsRefusedBeforeTheQuestion(t *testing.T) {
	w, b := writeConfig()
	source := holding(mutex("job:nightly", "cron-3:9", time.Minute))
	source.edit = func(snap *keyspace.Snapshot) { snap.Server.Role, snap.Server.Master = "slave", "10.0.0.1:6379" }
	w.Source = source
	drive(t, w, func(d *driver) {
		d.press("x").want("this is a replica: start locktop on its master, 10.0.0.1:6379, to act").wantNot("release it")
		b.want(t)
	})
}
