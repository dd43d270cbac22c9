package tui

import (
	"fmt"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"locktop/keyspace"
	"locktop/tui/svg"
	"locktop/tui/widget"
)

// exportMenu returns the menu of file formats for the frame on the screen.
func (a *app) exportMenu() *menu {
	frame, w, h := a.View(), a.screen.w, a.screen.h
	title := "locktop " + a.address()
	saveAs := func(key, label, detail, file string, data func() []byte) choice {
		return choice{key: key, label: label, detail: detail, pick: func(*state) (dialog, tea.Cmd) {
			return nil, saveFrame(a.config.Frames, file, data)
		}}
	}
	return &menu{title: "save this frame", choices: []choice{
		saveAs("t", "text", "as it can be pasted into a ticket", "frame.txt", func() []byte { return []byte(plainText(frame)) }),
		saveAs("a", "ansi", "with its colours; cat shows it", "frame.ansi", func() []byte { return []byte(frame + "\n") }),
		saveAs("s", "svg", "an image, for a page or a mail", "frame.svg", func() []byte { return svg.Draw(title, frame, w, h) }),
	}}
}

// writeScenario saves the current scenario of the load as a file.
func (a *app) writeScenario() tea.Cmd {
	if a.run.load == nil {
		return a.reject(noLoad)
	}
	return saveFrame(a.config.Frames, "scenario.yaml", a.run.scenario.Marshal)
}

// plainText returns a frame without colours and trailing blanks.
func plainText(frame string) string {
	var b strings.Builder
	for line := range strings.Lines(ansi.Strip(frame) + "\n") {
		fmt.Fprintln(&b, strings.TrimRight(line, " \n"))
	}
	return b.String()
}

// defaultTTL is the TTL that the dialogs offer first.
const defaultTTL = 30 * time.Second

// copyMenu returns the menu of texts to copy from a lock. Keys and tokens reach the clipboard
// with escaped control characters.
func (a *app) copyMenu(l keyspace.Lock) *menu {
	m := &menu{title: "copy from " + a.privacy.key(l.Key)}
	m.choices = append(m.choices, a.copyOf("k", "key", widget.Plain(l.Key), ""))
	token, process, none, unknown := "", "", "nobody holds it", "nobody holds it"
	if len(l.Holders) > 0 {
		token, none, process, unknown = widget.Plain(l.Holders[0].ID), "", a.viewOf(&l).processCommand(), ""
		if process == "" {
			unknown = a.keymap.named("its process is not known; {who} on its page may find it")
		}
	}
	m.choices = append(m.choices, a.copyOf("t", "token", token, none))
	m.choices = append(m.choices, a.copyOf("p", "process", process, unknown))
	m.choices = append(m.choices, a.copyAction("r", "command that releases it", keyspace.ForceRelease, l))
	if l.Endless() {
		m.choices = append(m.choices, a.copyAction("d", "command that sets a deadline", keyspace.Expire, l))
	}
	if wake := keyspace.WakeCommand(a.config.Formats, l, a.clock(), a.config.RedisCLI...); wake != "" {
		m.choices = append(m.choices, a.copyOf("w", "command that wakes the next waiter", wake, ""))
	}
	return m
}

// copyAction returns the choice to copy the command for an action. The screen then shows the consequences of the action.
// The shell shows those that stay true, in a command that does nothing: not every shell takes a comment at its prompt.
func (a *app) copyAction(key, label string, act keyspace.Action, l keyspace.Lock) choice {
	command, why := a.config.exactCommand(act, l, defaultTTL)
	c := a.copyOf(key, label, command, why)
	c.pick = func(s *state) (dialog, tea.Cmd) {
		effect := pendingAction{act: act, ttl: defaultTTL}.consequence(s.viewOf(&l))
		closing := choice{key: "q", label: "close", pick: func(*state) (dialog, tea.Cmd) { return nil, nil }}
		return &menu{title: "copied the " + label, about: strings.SplitAfter(s.clock().Local().Format("15:04:05 ")+effect, ". "), choices: []choice{closing}},
			copyText(a.config.Clipboard, label, ": 'only for this hold; its holder is not stopped: it keeps working'\n"+command)
	}
	return c
}

// eventCopyMenu returns the menu of texts to copy from an event. It has no command: the lock may have changed since.
func (a *app) eventCopyMenu(e *keyspace.Event) *menu {
	client, none := widget.Plain(clientOf(e)), ""
	if client == "" {
		none = "the event is about no client"
	}
	text := strings.Join([]string{
		e.At.Format("2006-01-02T15:04:05.000Z07:00"), string(e.Kind), widget.Plain(e.Lock.Key), client, a.details(e),
	}, " ")
	return &menu{title: "copy from this event", choices: []choice{
		a.copyOf("k", "key", widget.Plain(e.Lock.Key), ""),
		a.copyOf("c", "client", client, none),
		a.copyOf("e", "event", strings.TrimSpace(text), ""),
	}}
}

// exactCommand returns a shell command for an action on exactly the holds of a lock, in printable ASCII, or why there is none.
func (w *Config) exactCommand(act keyspace.Action, l keyspace.Lock, ttl time.Duration) (command, why string) {
	command, err := keyspace.ExactCommand(w.Formats, act, l, ttl, w.RedisCLI...)
	if err != nil {
		return "", widget.Plain(err.Error())
	}
	return command, ""
}

// copyOf returns the choice to copy a text. A why other than "" disables it.
func (a *app) copyOf(key, label, text, why string) choice {
	c := choice{key: key, label: label, disabled: why, pick: func(*state) (dialog, tea.Cmd) {
		return nil, copyText(a.config.Clipboard, label, text)
	}}
	if !a.privacy.on { // the text is already escaped
		c.detail = strings.ReplaceAll(text, "\n", "; ")
	}
	if !a.privacy.on && why == "" {
		c.full = text
	}
	return c
}
