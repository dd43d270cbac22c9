package tui

import (
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/recording"
)

// fakeNotifier records the notices.
type fakeNotifier struct{ texts []string }

func (n *fakeNotifier) Notify(text string) error {
	n.texts = append(n.texts, text)
	return nil
}

// endless returns locks that are held without a deadline.
func endless(keys ...string) []keyspace.Lock {
	return mapped(keys, func(key string) keyspace.Lock {
		return keyspace.Lock{Key: key, Format: "f", Holders: []keyspace.Holder{{ID: "tok", Count: 1}}}
	})
}

// A notice is for a critical finding that is new and that the user cannot see.
func TestANewCriticalFindingIsANoticeOutOfFocus(t *testing.T) {
	server := &fakeServer{locks: endless("old")}
	to := &fakeNotifier{}
	add := func(d *driver, keys ...string) {
		server.locks = append(slices.Clone(server.locks), endless(keys...)...)
		d.wait(alarmPause / 2)
	}
	drive(t, Config{Source: server, Notifier: to}, func(d *driver) {
		d.deliver(tea.FocusMsg{})
		add(d, "seen")
		d.deliver(tea.BlurMsg{})
		d.wait(alarmPause)
		check.Require(t, len(to.texts) == 0, "notices of what was there, or in focus: %q", to.texts)
		add(d, "a\x1b]0;x\a", "b")
		if len(to.texts) != 1 || !strings.HasPrefix(to.texts[0], `a\x1b]0;x\a: Held without a deadline`) && !strings.HasPrefix(to.texts[0], `a\x1b]0;x\x07: Held without a deadline`) || !strings.HasSuffix(to.texts[0], "(and 1 more)") {
			t.Fatalf("notices: %q", to.texts)
		}
	})
	drive(t, Config{Source: server}, func(d *driver) { add(d, "off") })
}

// Two notices are at least 10 s apart. A finding that was gone in between is new again, one that is
// not critical is no notice, and privacy hides the names.
func TestNoticesAreApart(t *testing.T) {
	server, to := &fakeServer{}, &fakeNotifier{}
	drive(t, Config{Source: server, Notifier: to}, func(d *driver) {
		show := func(notices int, locks ...keyspace.Lock) {
			t.Helper()
			server.locks = locks
			d.wait(2 * time.Second)
			check.True(t, len(to.texts) == notices, "%d notices, want %d: %q", len(to.texts), notices, to.texts)
		}
		show(0)
		show(1, endless("a", "b")...)
		show(1, endless("a", "c")...)
		show(1, endless("a", "b", "c")...)
		d.wait(alarmPause)
		show(2, endless("a", "b", "c")...)
		check.True(t, strings.HasSuffix(to.texts[1], "(and 1 more)"), "the second notice is %q", to.texts[1])
		d.wait(alarmPause)
		waited := mutex("w", "worker", time.Hour)
		waited.Waiters = []keyspace.Waiter{{ID: "waiter", Since: before(5 * time.Second)}}
		show(2, waited)
		d.want("▲ w").press("p")
		show(3, endless("secret")...)
		check.False(t, strings.Contains(to.texts[2], "secret"), "privacy shows %q", to.texts[2])
		d.wait(alarmPause)
		const ann, bob = "0f6a2b1c-1111-4222-8333-0123456789ab:7", "8743c9c0-1111-4222-8333-0123456789ab:9"
		first, second := mutex("one", ann, time.Hour), mutex("two", bob, time.Hour) // a finding whose text has names
		first.Waiters = []keyspace.Waiter{{ID: bob, Since: after(40 * time.Second)}}
		second.Waiters = []keyspace.Waiter{{ID: ann, Since: after(40 * time.Second)}}
		show(4, first, second)
		check.Contains(t, to.texts[3], "eadlock")
		check.False(t, slices.ContainsFunc([]string{ann, bob, "two"}, func(name string) bool { return strings.Contains(to.texts[3], name) }),
			"privacy shows %q", to.texts[3])
	})
}

// What was critical when it was recorded is no reason for a notice.
func TestAPlaybackSendsNoNotices(t *testing.T) {
	r := writeRecording(t, false, func(t *testing.T, w *recording.Writer) {
		for second := range 20 {
			snap := keyspace.Snapshot{At: after(time.Duration(second) * time.Second), Complete: true}
			if second > 5 {
				snap.Locks = []*keyspace.Lock{&endless("a")[0]}
			}
			check.NoError(t, w.Add(snap))
		}
	})
	to, play := &fakeNotifier{}, &fakePlayer{reader: r, playing: PlaybackState{At: after(0), Speed: 1}}
	drive(t, Config{Source: play, Player: play, Notifier: to}, func(d *driver) {
		d.wait(time.Second).wantNot("without a deadline")
		play.playing.At = after(10 * time.Second)
		d.wait(time.Second).want("1 finding")
	})
	check.True(t, len(to.texts) == 0, "notices: %q", to.texts)
}
