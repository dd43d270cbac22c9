package tui

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// keymap is the table of keys with the changes of the configuration.
type keymap []binding

// Action is an action that a key of the screen has.
type Action struct {
	Name string // in the configuration
	Keys string // bubbletea's names, with blanks between them
	Help string
}

// Actions lists all actions with their keys before the configuration changes them.
func Actions() []Action {
	var all []Action
	for _, b := range newKeymap(nil, nil) {
		for _, s := range b.actions {
			if !slices.ContainsFunc(all, func(a Action) bool { return a.Name == string(s.action) }) {
				all = append(all, Action{string(s.action), s.keys, b.help})
			}
		}
	}
	return all
}

// KeyError is an error in the keys of a configuration.
type KeyError struct {
	Action  string // whose keys are wrong; "" = those of a command
	Command int    // index of the command
	Err     error
}

func (e *KeyError) Error() string { return e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

// UnknownActionError is the error for an action that does not exist.
type UnknownActionError struct{ Name string }

func (e *UnknownActionError) Error() string { return fmt.Sprintf("there is no action %q", e.Name) }

// CheckKeys returns a *KeyError for an action that does not exist, for a name that is not a
// key's, for a key with two actions on one page, and for a command that cannot run. changed has
// the keys of actions, in the form of [Action].Keys.
func CheckKeys(changed map[string]string, commands []RowCommand) error {
	known := Actions()
	changed = maps.Clone(changed)
	maps.DeleteFunc(changed, func(name, keys string) bool {
		return slices.ContainsFunc(known, func(a Action) bool { return a.Name == name && a.Keys == keys })
	})
	for name, keys := range changed {
		if !slices.ContainsFunc(known, func(a Action) bool { return a.Name == name }) {
			return &KeyError{Action: name, Err: &UnknownActionError{name}}
		}
		if err := checkNames(keys); err != nil {
			return &KeyError{Action: name, Err: fmt.Errorf("%s: %w", name, err)}
		}
	}
	for i, c := range commands {
		if err := c.check(commands[:i]); err != nil {
			return &KeyError{Command: i, Err: err}
		}
	}
	return newKeymap(changed, commands).clash(changed, commands)
}

// checkNames returns an error for a name in keys that is not a key's.
func checkNames(keys string) error {
	if strings.TrimSpace(keys) == "" {
		return errors.New("it needs a key, like x, ctrl+x or f5")
	}
	for key := range strings.FieldsSeq(keys) {
		if key == "ctrl+c" {
			return errors.New("ctrl+c always quits: leave it out")
		}
		if !isKey(key) {
			return fmt.Errorf("%q is not a key; keys are like x, X, ctrl+x, alt+x, f5, enter, esc, space, tab, left, pgup", key)
		}
	}
	return nil
}

// isKey reports whether bubbletea has a key with this name, or it is space.
func isKey(name string) bool {
	name = strings.TrimPrefix(name, "alt+")
	if r, size := utf8.DecodeRuneInString(name); size == len(name) {
		return unicode.IsGraphic(r) && r != utf8.RuneError
	}
	for k := tea.KeyF20; k <= 127; k++ {
		if k != tea.KeyRunes && k.String() == name {
			return true
		}
	}
	return name == "space"
}

// clash returns a *KeyError if a key has two actions on one page. It names an action of changed
// or a command rather than an action that has its keys from the table.
func (t keymap) clash(changed map[string]string, commands []RowCommand) error {
	for _, at := range allPages() {
		seen := map[string]action{}
		for _, b := range t {
			if b.place&at == 0 {
				continue
			}
			for key, does := range b.named() {
				other, taken := seen[key]
				seen[key] = does
				if !taken || other == does {
					continue
				}
				e := &KeyError{Err: fmt.Errorf("%s is a key of %s and of %s on the page %s", strings.ReplaceAll(key, " ", "space"), other, does, at)}
				if e.Command = commandOf(does, commands); e.Command < 0 {
					e.Action = string(does)
					if _, named := changed[e.Action]; !named {
						e.Action = string(other)
					}
				}
				return e
			}
		}
	}
	return nil
}

// newKeymap returns the table of keys with the changed keys of actions, and with the commands
// after the keys of locks.
func newKeymap(changed map[string]string, commands []RowCommand) keymap {
	t := keymap(bindings())
	for i := range t {
		b := &t[i]
		for j := range b.actions {
			if keys, ok := changed[string(b.actions[j].action)]; ok && keys != b.actions[j].keys {
				b.actions[j].keys, b.label = keys, ""
			}
		}
		if b.label == "" {
			b.label = labelOf(b.actions)
		}
	}
	at := 1 + slices.IndexFunc(t, func(b binding) bool { return b.actions[0].action == findClient })
	for i, c := range commands {
		actions := []stroke{{c.action(), c.Key}}
		t = slices.Insert(t, at+i, binding{actions, commandPages, labelOf(actions), widget.Plain(c.Name), "run " + widget.Plain(strings.Join(c.Run, " "))})
	}
	for i := range t {
		t[i].help = t.named(t[i].help)
	}
	return t
}

// keyLabels are the names of keys for the user, where they differ from bubbletea's.
var keyLabels = map[string]string{
	"left": "←", "right": "→", "up": "↑", "down": "↓", "enter": "Enter", "esc": "Esc", "tab": "Tab", "shift+tab": "⇧Tab",
	"pgup": "PgUp", "pgdown": "PgDn", "home": "Home", "end": "End", "insert": "Ins", "delete": "Del",
}

// labelOf returns the names of the first key of each action.
func labelOf(actions []stroke) string {
	labels := mapped(actions, func(s stroke) string {
		key, _, _ := strings.Cut(s.keys, " ")
		short, control := strings.CutPrefix(key, "ctrl+")
		switch named, ok := keyLabels[key]; {
		case ok:
			key = named
		case control && len(short) == 1:
			key = "^" + strings.ToUpper(short)
		case len(key) > 1 && key[0] == 'f' && isKey(key):
			key = strings.ToUpper(key)
		}
		return key
	})
	return strings.Join(labels, " ")
}

// key returns the name of the first key of an action.
func (t keymap) key(act action) string {
	for _, b := range t {
		for _, s := range b.actions {
			if s.action == act {
				return labelOf([]stroke{s})
			}
		}
	}
	return string(act)
}

// named replaces {action} in a text of the program by the key of the action.
func (t keymap) named(text string) string {
	return actionInText.ReplaceAllStringFunc(text, func(name string) string { return t.key(action(name[1 : len(name)-1])) })
}

// remedy returns the remedy of a finding with the keys of the screen.
func (t keymap) remedy(f keyspace.Finding) string {
	return t.named(strings.NewReplacer("{deadline}", "{release} and d set one, {copy} and d copy the command", "{release}", "{release} does it, {copy} copies the command",
		"{wake}", "the page of the lock shows the command", "{limit}", "--overdue 'KEY=2h'", "{match}", "--match 'PATTERN'", "{cluster}", "--cluster").Replace(f.Remedy))
}

var actionInText = regexp.MustCompile(`\{[a-z-]+\}`)

// actionOf returns the action of a key on a page, or noAction.
func (t keymap) actionOf(key string, at pageSet) action {
	for _, b := range t {
		for name, does := range b.named() {
			if b.place&at != 0 && name == key {
				return does
			}
		}
	}
	return noAction
}

// pagesOf lists the pages on which a key works, "" if there are none.
func (t keymap) pagesOf(key string) string {
	var names []string
	for _, at := range allPages() {
		if t.actionOf(key, at) != noAction {
			names = append(names, at.String())
		}
	}
	return strings.Join(names, ", ")
}
