package tui

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// RowCommand is a command of the configuration, which a key runs for the selected lock.
type RowCommand struct {
	Key  string   // in the form of [Action].Keys
	Name string   // for the user
	Run  []string // program and arguments, with placeholders like {key} in the arguments
}

// commandPages are the pages on which a RowCommand works.
const commandPages = onLocks | onLock | onFindings

// action returns the action of the key of c.
func (c RowCommand) action() action { return action("command " + c.Name) }

// commandOf returns the index of the command with an action, -1 if there is none.
func commandOf(act action, commands []RowCommand) int {
	return slices.IndexFunc(commands, func(c RowCommand) bool { return c.action() == act })
}

// placeholder is a word in braces that stands for a value of the selected lock, "" if the lock has
// no such value.
type placeholder struct{ word, value string }

// placeholders lists all placeholders. A lock with several holders has the values of the first.
func placeholders(l *keyspace.Lock) []placeholder {
	var h keyspace.Holder
	if len(l.Holders) > 0 {
		h = l.Holders[0]
	}
	p, pid := keyspace.Process{}, ""
	if found, ok := h.Process(); ok {
		p, pid = found, strconv.Itoa(found.PID)
	}
	return []placeholder{
		{"{key}", l.Key}, {"{owner}", h.Name()}, {"{token}", h.ID}, {"{host}", p.Host}, {"{pid}", pid},
		{"{client}", h.Addr}, {"{format}", l.Format}, {"{node}", l.Node}, {"{db}", strconv.Itoa(l.DB)},
	}
}

var inBraces = regexp.MustCompile(`\{[a-z]+\}`)

// check returns an error if c cannot run. earlier are the commands before c.
func (c RowCommand) check(earlier []RowCommand) error {
	if err := checkNames(c.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	switch {
	case c.Name == "":
		return errors.New("the command has no name")
	case commandOf(c.action(), earlier) >= 0:
		return fmt.Errorf("two commands have the name %q", c.Name)
	case len(c.Run) == 0 || c.Run[0] == "":
		return errors.New("run: it needs a program and its arguments, like [kubectl, logs, \"{host}\"]")
	case inBraces.MatchString(c.Run[0]):
		return errors.New("run: the program must not come from Redis: write its name")
	}
	for _, arg := range c.Run {
		for _, name := range inBraces.FindAllString(arg, -1) {
			if !slices.Contains(Placeholders(), name) {
				return fmt.Errorf("run: there is no %s; there are %s", name, strings.Join(Placeholders(), " "))
			}
		}
	}
	return nil
}

// Placeholders lists the words in braces that the arguments of a [RowCommand] may have.
func Placeholders() []string {
	return mapped(placeholders(&keyspace.Lock{}), func(p placeholder) string { return p.word })
}

// args returns the program and its arguments for a lock. The values come from Redis, so it
// returns an error for an argument that only its value makes a flag.
func (c RowCommand) args(l *keyspace.Lock) ([]string, error) {
	args, known := slices.Clone(c.Run), placeholders(l)
	for i, arg := range c.Run {
		var missing string
		args[i] = inBraces.ReplaceAllStringFunc(arg, func(word string) string {
			p := known[slices.IndexFunc(known, func(p placeholder) bool { return p.word == word })]
			if p.value == "" {
				missing = word
			}
			return p.value
		})
		switch {
		case missing != "":
			return nil, fmt.Errorf("this lock has no %s", missing)
		case strings.HasPrefix(args[i], "-") && !strings.HasPrefix(arg, "-"):
			return nil, fmt.Errorf("the value of %s begins with - and would be a flag", arg)
		}
	}
	return args, nil
}

// runOnLock runs a command for the selected lock.
func (a *app) runOnLock(c RowCommand) tea.Cmd {
	l, ok := a.selected()
	if !ok {
		return a.reject("no lock to run " + widget.Plain(c.Name) + " for")
	}
	args, err := c.args(&l)
	if err != nil {
		return a.reject(widget.Plain(c.Name) + ": " + err.Error())
	}
	return runProgram(a.ctx, a.config.Runner, c.Name, args)
}

// onProgram reports how a program of the user has ended.
func (a *app) onProgram(msg programMsg) {
	name := widget.Plain(msg.name)
	if msg.err != nil {
		a.reject(name + ": " + shortError(msg.err))
		return
	}
	a.notify(name + " has ended")
}
