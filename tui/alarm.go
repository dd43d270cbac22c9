package tui

import (
	"fmt"
	"maps"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
)

// alarm notifies the user of new critical findings while the terminal is not in focus.
type alarm struct {
	inFocus bool               // the terminal has reported it; a terminal that reports nothing counts as not in focus
	known   map[findingID]bool // critical findings that the user has been told of, or could see; nil before the first snapshot
	next    time.Time          // no notice before
}

// alarmPause is the least time between two notices: a finding may come and go.
const alarmPause = 10 * time.Second

// notifyCritical notifies the user of the critical findings that are new since the first snapshot. It does not in
// a recording.
func (a *app) notifyCritical() tea.Cmd {
	if a.config.Notifier == nil || a.playback != nil {
		return nil
	}
	m := &a.alarm
	critical := map[findingID]bool{}
	var fresh []keyspace.Finding
	for _, f := range a.live.findings {
		if id := idOf(&f); f.Severity == keyspace.Critical && !critical[id] {
			critical[id] = true
			if !m.known[id] {
				fresh = append(fresh, f)
			}
		}
	}
	if quiet := m.known == nil || m.inFocus; quiet || len(fresh) == 0 || !a.now.Before(m.next) {
		m.known = critical
		if quiet || len(fresh) == 0 {
			return nil
		}
		m.next = a.now.Add(alarmPause)
		return sendNotice(a.config.Notifier, a.alarmText(fresh))
	}
	maps.DeleteFunc(m.known, func(id findingID, _ bool) bool { return !critical[id] }) // told of, and gone meanwhile
	return nil
}

// alarmText describes the first finding and counts the others.
func (a *app) alarmText(fresh []keyspace.Finding) string {
	f := fresh[0]
	text := fmt.Sprintf("%s: %s", a.subjectOf(f), a.redactText(f.Lock, f.Text))
	if more := len(fresh) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}
