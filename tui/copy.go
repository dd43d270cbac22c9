package tui

import (
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// giveTTL is the time to live that is offered first.
const giveTTL = 30 * time.Second

// copying asks what of a lock to copy. Nothing of it reaches the clipboard but
// what is visible: control characters as escapes.
func (a *app) copying(l keyspace.Lock) *menu {
	m := &menu{title: "copy from " + a.redactKey(l.Key)}
	m.choices = append(m.choices, a.copyOf("k", "key", widget.Plain(l.Key), ""))
	token, none := "", "nobody holds it"
	if len(l.Holders) > 0 {
		token, none = widget.Plain(l.Holders[0].ID), ""
	}
	m.choices = append(m.choices, a.copyOf("t", "token", token, none))
	breaking, why := a.safeCommand(keyspace.ForceRelease, l, giveTTL)
	m.choices = append(m.choices, a.copyOf("b", "command that breaks it", breaking, why))
	if l.Endless() {
		expiring, why := a.safeCommand(keyspace.Expire, l, giveTTL)
		m.choices = append(m.choices, a.copyOf("d", "command that sets a deadline", expiring, why))
	}
	return m
}

// safeCommand is a command for somebody who may change the lock, or why there
// is none. It is printable ASCII.
func (s *state) safeCommand(act keyspace.Action, l keyspace.Lock, ttl time.Duration) (command, why string) {
	command, err := keyspace.SafeCommand(s.formats, act, l, ttl, s.redisCLI...)
	if err != nil {
		return "", widget.Plain(err.Error())
	}
	return command, ""
}

// copyOf is the choice to copy a text, or says why it cannot be copied.
func (a *app) copyOf(key, label, text, why string) choice {
	c := choice{key: key, label: label, detail: a.shownText(text), refuse: why}
	if !a.hidden.on && why == "" {
		c.exact = text
	}
	if a.config.Clipboard == nil {
		c.refuse = "there is no clipboard here"
	}
	c.pick = func(s *state) (dialog, tea.Cmd) {
		return nil, copyText(a.config.Clipboard, label, text)
	}
	return c
}

// shownText is a text as one line of a menu. It is fit to be shown already: to
// make it so again would change its backslashes.
func (a *app) shownText(text string) string {
	if a.hidden.on {
		return ""
	}
	return inOneLine(text)
}

// inOneLine is a command of several lines as one.
func inOneLine(command string) string { return strings.ReplaceAll(command, "\n", "; ") }
