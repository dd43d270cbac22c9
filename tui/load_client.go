package tui

import (
	"errors"
	"fmt"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/tui/widget"
)

// This file holds the client processes of the load: the command exec, and what the Load page shows
// of them. Only a command that the user types starts processes.

// runClient runs client processes of a command in the current scenario, or without a command the
// scenario that it replaced.
func (a *app) runClient(command string) (tea.Cmd, error) {
	now, own := a.run.scenario, a.run.scenario.Lock.Kind != loadgen.Exec
	switch {
	case a.playback != nil:
		return nil, errors.New("a recording runs no clients")
	case a.run.load == nil && a.run.begin == nil:
		return nil, errors.New(noLoad)
	case command == "" && own:
		return nil, errors.New("type the command of a client after it, like :exec python3 client.py")
	case command == "":
		a.openIndex(onLoad)
		a.notify("back to the locks of locktop")
		return a.run.request(a.run.before(), true), nil
	case now.Lock.Kind.Quorum():
		return nil, errors.New("a client has one server here, and this scenario needs several; m chooses another one")
	}
	if err := now.WithClient(command).Validate(); err != nil {
		return nil, fmt.Errorf("%w; m chooses another scene", err)
	}
	if why := a.run.refuses(now.WithClient(command)); why != "" {
		return nil, errors.New(why)
	}
	a.openIndex(onLoad)
	if a.run.load == nil {
		a.dialog = confirmStart(&a.state, command)
		return nil, nil
	}
	if own {
		a.run.own = &now
	}
	return a.run.request(now.WithClient(command), true), nil
}

// before returns the scenario that client processes replaced.
func (f *loadState) before() loadgen.Scenario {
	if f.own != nil {
		return *f.own
	}
	s := f.scenario
	setKind(&s, loadgen.Mutex)
	return s
}

// rejectStart shows why the clients did not start: completely on the Load page, and with its
// beginning in the last line.
func (s *state) rejectStart(why string) {
	s.run.failed = why
	s.reject(why)
}

// hidesClients reports whether the stored tokens of a kind do not name the clients of the load.
func hidesClients(k loadgen.Kind) bool { return !k.Sound() || k == loadgen.Exec }

// startsProcesses reports whether client processes start, which may take some time.
func (f *loadState) startsProcesses() bool {
	return (f.changing || f.launching) && f.scenario.Lock.Kind == loadgen.Exec
}

// clientLine names the library of the client processes and their command.
func (s *state) clientLine(w int) []string {
	lock, t := s.run.scenario.Lock, s.screen.theme
	if lock.Kind != loadgen.Exec {
		return nil
	}
	l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(t.key, "client ")
	name := widget.Plain(s.run.metrics.Library)
	switch {
	case s.run.startsProcesses():
		l.Put(t.warn, "starting "+humanize.Count(s.run.scenario.Clients)+" of").Pad(widget.Style{}, 1)
	case name != "":
		l.Put(t.strong, s.screen.glyphs.FitEnd(name, min(widget.Width(name), l.Rest()-1))).Pad(widget.Style{}, 2)
	}
	return []string{l.Put(t.dim, s.screen.glyphs.FitEnd(s.redactLoad(lock.Exec), max(0, l.Rest()-1))).String()}
}
