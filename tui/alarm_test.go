package tui

import (
	"slices"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
)

// fakeNotifier records the notices.
type fakeNotifier struct{ texts []string }

func (n *fakeNotifier) Notify(text string) error {
	n.texts = append(n.texts, text)
	return nil
}

// A notice is for a critical finding that is new and that the user cannot see.
func TestANewCriticalFindingIsANoticeOutOfFocus(t *testing.T) {
	endless := func(key string) keyspace.Lock {
		return keyspace.Lock{Key: key, Format: "f", Holders: []keyspace.Holder{{ID: "tok", Count: 1}}}
	}
	server := &fakeServer{locks: []keyspace.Lock{endless("old")}}
	to := &fakeNotifier{}
	add := func(d *driver, locks ...keyspace.Lock) {
		server.mu.Lock()
		server.locks = append(slices.Clone(server.locks), locks...)
		server.mu.Unlock()
		d.wait(alarmPause / 2)
	}
	drive(t, Config{Source: server, Notifier: to}, func(d *driver) {
		d.deliver(tea.FocusMsg{})
		add(d, endless("seen"))
		d.deliver(tea.BlurMsg{})
		d.wait(alarmPause)
		if len(to.texts) != 0 {
			t.Fatalf("notices of what was there, or in focus: %q", to.texts)
		}
		add(d, endless("a\x1b]0;x\a"), endless("b"))
		if len(to.texts) != 1 || !strings.HasPrefix(to.texts[0], `a\x1b]0;x\a: Held without a deadline`) && !strings.HasPrefix(to.texts[0], `a\x1b]0;x\x07: Held without a deadline`) || !strings.HasSuffix(to.texts[0], "(and 1 more)") {
			t.Fatalf("notices: %q", to.texts)
		}
		add(d, endless("c"))
		if d.wait(alarmPause); len(to.texts) != 2 || !strings.HasPrefix(to.texts[1], "c: ") {
			t.Errorf("the next notice does not wait for its time: %q", to.texts)
		}
	})
	drive(t, Config{Source: server}, func(d *driver) { add(d, endless("off")) })
}
