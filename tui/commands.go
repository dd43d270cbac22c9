package tui

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// commandSpec is a command of the screen's command line.
type commandSpec struct {
	name   string
	arg    string // name of the argument for the user; "" if there is none
	help   string
	values []string // known values of the argument
	only   bool     // there are no other values
	run    func(a *app, arg string) (tea.Cmd, error)
}

// commandSpecs lists all commands, in the order of completion.
func commandSpecs() []commandSpec {
	pages := mapped(openers, func(a action) string { return string(a) })
	return []commandSpec{
		{"theme", "NAME", "other colours", Themes(), true, func(a *app, name string) (tea.Cmd, error) {
			a.screen.theme = themeNamed(name, a.screen.renderer)
			return nil, nil
		}},
		{"glyphs", "NAME", "other signs to draw with", widget.GlyphSets(), true, func(a *app, name string) (tea.Cmd, error) {
			a.screen.glyphs = widget.GlyphsNamed(name)
			return nil, nil
		}},
		{"page", "NAME", "open a page", pages, true, func(a *app, name string) (tea.Cmd, error) { return a.perform(action(name)), nil }},
		{"lock", "KEY", "open the page of a lock", nil, false, (*app).openLock},
		{"filter", "TEXT", "show some of the locks, as / does", nil, false, (*app).setFilter},
		{"sort", "COLUMN", "order the locks", orders(), true, (*app).setOrder},
		{"group", "NAME", "group the locks by owner, or show one row for each class of locks with its waiting", groups(), true, func(a *app, name string) (tea.Cmd, error) {
			a.locks().groupBy(name)
			return a.perform(openLocks), nil
		}},
		{"write", "", "let x act on locks, after a question; again: only read", nil, false, (*app).switchWrite},
		{"db", "NUMBER", "the locks of another database", []string{"all"}, false, (*app).setDB},
		{"match", "GLOB", "read other keys; * is all", nil, false, (*app).setMatch},
		{"every", "DURATION", "refresh interval", []string{"250ms", "1s", "5s"}, false, (*app).setEvery},
		{"snooze", "DURATION", "how long a finding is snoozed", []string{"15m", "1h", "8h"}, false, (*app).setSnooze},
		{"at", "TIME", "go to a moment: 12:31:07, 03:12, or -90s (before the end, or before now)", nil, false, (*app).goTo},
		{"speed", "FACTOR", "of a recording: 0.5, 1, 4", nil, false, (*app).setSpeedTo},
		{"live", "", "back to now", nil, false, func(a *app, _ string) (tea.Cmd, error) { return a.perform(live), nil }},
		{"privacy", "", "hash keys and owners", nil, false, func(a *app, _ string) (tea.Cmd, error) { return a.perform(togglePrivacy), nil }},
		{"help", "", "list the keys", nil, false, func(a *app, _ string) (tea.Cmd, error) { return a.perform(help), nil }},
		{"quit", "", "quit", nil, false, func(a *app, _ string) (tea.Cmd, error) { return tea.Quit, nil }},
	}
}

// commandPrompt opens the command line.
func (a *app) commandPrompt() *prompt {
	p := newPrompt(":", "")
	p.note = func(text string) (string, bool) { return hintAt(text), false }
	p.complete, p.earlier = complete, a.typed
	p.finish = func(text string) (dialog, tea.Cmd) {
		a.next = func(a *app) tea.Cmd { return a.runCommand(text) } // run it after this dialog closes: the command may open a dialog
		return nil, nil
	}
	return p
}

// runCommand runs a command. An unambiguous prefix of its name is enough.
func (a *app) runCommand(text string) tea.Cmd {
	name, arg, _ := strings.Cut(strings.TrimSpace(text), " ")
	if name == "" {
		return nil
	}
	arg = strings.TrimSpace(arg)
	a.typed = append(slices.DeleteFunc(a.typed, func(earlier string) bool { return earlier == text }), text)
	found := commandsNamed(name)
	switch {
	case len(found) == 0:
		return a.reject("no command " + widget.Plain(name) + "; there are " + strings.Join(namesOf(commandSpecs()), ", "))
	case len(found) > 1 && found[0].name != name:
		return a.reject(widget.Plain(name) + " may be " + strings.Join(namesOf(found), ", "))
	case found[0].only && !slices.Contains(found[0].values, arg):
		return a.reject(found[0].name + ": one of: " + strings.Join(found[0].values, ", "))
	}
	cmd, err := found[0].run(a, arg)
	if err != nil {
		a.reject(found[0].name + ": " + widget.Plain(err.Error()))
	}
	return cmd
}

func commandsNamed(name string) []commandSpec {
	return slices.DeleteFunc(commandSpecs(), func(v commandSpec) bool { return !strings.HasPrefix(v.name, name) })
}

func namesOf(all []commandSpec) []string {
	return mapped(all, func(v commandSpec) string { return v.name })
}

// hintAt describes the possible input after text.
func hintAt(text string) string {
	name, arg, spaced := strings.Cut(text, " ")
	found := commandsNamed(name)
	switch {
	case len(found) == 0:
		return "no such command"
	case name == "" || len(found) > 1 && !spaced:
		return strings.Join(namesOf(found), ", ")
	case len(found[0].values) > 0 && spaced:
		return strings.Join(withPrefix(found[0].values, arg), ", ")
	default:
		return strings.TrimSpace(found[0].arg + "  " + found[0].help)
	}
}

// complete extends text by what all matching commands or values have in common.
func complete(text string) string {
	name, arg, spaced := strings.Cut(text, " ")
	found := commandsNamed(name)
	if len(found) == 0 {
		return text
	}
	if !spaced {
		if len(found) == 1 && found[0].arg != "" {
			return found[0].name + " "
		}
		return commonPrefix(namesOf(found))
	}
	if values := withPrefix(found[0].values, arg); len(values) > 0 {
		return found[0].name + " " + commonPrefix(values)
	}
	return text
}

func withPrefix(values []string, beginning string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !strings.HasPrefix(v, beginning) })
}

// commonPrefix returns the longest common prefix. all must not be empty.
func commonPrefix(all []string) string {
	prefix := all[0]
	for _, s := range all {
		for !strings.HasPrefix(s, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}

// openLock opens a lock by its key as the screen shows it.
func (a *app) openLock(key string) (tea.Cmd, error) {
	for _, l := range a.current().locks {
		if widget.Plain(l.Key) == key {
			a.showLock(*l)
			return nil, nil
		}
	}
	return nil, fmt.Errorf("there is no lock %s on the screen", key)
}

func (a *app) locks() *locksPage { return a.pages[0].(*locksPage) }

func (a *app) setFilter(text string) (tea.Cmd, error) {
	a.locks().filter = parseFilter(text)
	a.locks().arrange(&a.state)
	if fault := a.locks().filter.parseErr; fault != "" {
		return nil, errors.New(fault)
	}
	return a.perform(openLocks), nil
}

// orders lists the names of the sort orders of the locks page.
func orders() []string {
	all := []string{severityOrder}
	for _, c := range lockColumns() {
		if c.less != nil {
			all = append(all, c.name())
		}
	}
	return all
}

// setOrder sorts the locks by one of orders, and shows its column.
func (a *app) setOrder(name string) (tea.Cmd, error) {
	p := a.locks()
	if p.group == byClass {
		p.groupBy(noGroup)
	}
	p.wide = p.wide || slices.ContainsFunc(lockColumns(), func(c column) bool { return c.name() == name && c.wide })
	p.sort, p.reversed = slices.IndexFunc(p.columns(), func(c column) bool { return c.name() == name && c.less != nil }), false
	return a.perform(openLocks), nil
}

// switchWrite asks whether the screen may act, or makes it read-only again.
func (a *app) switchWrite(string) (tea.Cmd, error) {
	if a.config.Writer == nil {
		return nil, errors.New("nothing can be changed here")
	}
	if a.config.Executor != nil {
		return allowWrite(a.ctx, a.config.Writer, false), nil
	}
	stay := choice{key: "n", label: "only read", pick: func(*state) (dialog, tea.Cmd) { return nil, nil }}
	act := choice{key: "y", label: "act on locks", detail: "each action is asked for, and goes to the audit log",
		pick: func(*state) (dialog, tea.Cmd) { return nil, allowWrite(a.ctx, a.config.Writer, true) }}
	a.dialog = &menu{title: "may this screen act on the locks of " + a.address() + "?", choices: []choice{stay, act}}
	return nil, nil
}

// onExecutor takes an executor, and why it cannot act.
func (a *app) onExecutor(e Executor, why string, err error) {
	if err != nil {
		a.reject(shortError(err))
		return
	}
	if a.config.Executor != e {
		a.notify(map[bool]string{true: "this screen may act on locks", false: "this screen only reads"}[e != nil])
	}
	a.config.Executor, a.cannotAct = e, widget.Plain(why)
}

func (a *app) setDB(text string) (tea.Cmd, error) {
	if n, err := strconv.Atoi(text); text != "all" && (err != nil || n < 0) {
		return nil, fmt.Errorf("a number from 0 on, or all")
	}
	return a.switchTo(Target{DB: text})
}

func (a *app) setMatch(text string) (tea.Cmd, error) {
	if text == "" {
		return nil, fmt.Errorf("a glob like lock:*; * is all keys")
	}
	return a.switchTo(Target{Match: text})
}

// switchTo requests another target.
func (a *app) switchTo(v Target) (tea.Cmd, error) {
	if a.config.Connector == nil {
		return nil, fmt.Errorf("the source of this screen cannot be changed; %s filters it", a.keymap.key(search))
	}
	a.notify("switching to " + v.String() + " " + a.screen.glyphs.Ellipsis)
	return connect(a.ctx, a.config.Connector, v), nil
}

// String describes the target for the user.
func (v Target) String() string {
	if v.DB != "" {
		return "database " + widget.Plain(v.DB)
	}
	return widget.Plain(v.Match)
}

func (a *app) setEvery(text string) (tea.Cmd, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < tickInterval || d > time.Hour {
		return nil, fmt.Errorf("a duration from %s on, like 1s", humanize.Setting(tickInterval))
	}
	a.setPace(d)
	return nil, nil
}

func (a *app) setSnooze(text string) (tea.Cmd, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return nil, fmt.Errorf("a duration from 1 s on, like 8h")
	}
	a.snoozes.length = d
	a.notify(a.keymap.key(snooze) + " snoozes for " + humanize.Setting(d))
	return nil, nil
}

func (a *app) setSpeedTo(text string) (tea.Cmd, error) {
	factor, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	switch {
	case a.config.Player == nil:
		return nil, fmt.Errorf("this is live, not a recording")
	case err != nil || !(factor >= 0.1 && factor <= 100):
		return nil, fmt.Errorf("a number from 0.1 to 100")
	}
	a.setSpeed(factor)
	return nil, nil
}

// goTo goes to a moment, such as 12:31:07, or back by a duration, such as -90s.
func (a *app) goTo(text string) (tea.Cmd, error) {
	if p := a.playback; a.config.Player != nil {
		at, err := humanize.ParseMoment(text, p.Last, humanize.Span{First: p.First, Last: p.Last})
		if err == nil {
			a.seek(at)
		}
		return nil, err
	}
	_, newest := a.history.Span()
	now := keyspace.Later(newest, a.clock())
	at, err := humanize.ParseMoment(text, now, humanize.Span{Last: now})
	if err != nil {
		return nil, err
	}
	a.rewindTo(at)
	a.page().arrange(&a.state)
	return nil, nil
}

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

// onProgram reports how a program of the user has ended, and draws the screen again.
func (a *app) onProgram(name string, err error) tea.Cmd {
	if name = widget.Plain(name); err != nil {
		a.reject(name + ": " + shortError(err))
	} else {
		a.notify(name + " has ended")
	}
	return a.resume()
}
