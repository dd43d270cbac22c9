package tui

import (
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// giveTTL is the TTL that the dialogs offer first.
const giveTTL = 30 * time.Second

// copying returns the menu of texts to copy from a lock. Keys and tokens reach the clipboard
// with escaped control characters.
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

// safeCommand returns a shell command for an action, in printable ASCII, or why there is none.
func (s *state) safeCommand(act keyspace.Action, l keyspace.Lock, ttl time.Duration) (command, why string) {
	command, err := keyspace.SafeCommand(s.formats, act, l, ttl, s.redisCLI...)
	if err != nil {
		return "", widget.Plain(err.Error())
	}
	return command, ""
}

// copyOf returns the choice to copy a text. A why other than "" disables it.
func (a *app) copyOf(key, label, text, why string) choice {
	c := choice{key: key, label: label, detail: a.shownText(text), refuse: why}
	if !a.privacy.on && why == "" {
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

// shownText returns a text as one line of a menu. The text is already escaped; escaping it
// again would double its backslashes.
func (a *app) shownText(text string) string {
	if a.privacy.on {
		return ""
	}
	return inOneLine(text)
}

// inOneLine joins the lines of a command.
func inOneLine(command string) string { return strings.ReplaceAll(command, "\n", "; ") }
