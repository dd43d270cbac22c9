package tui

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/check"
	"locktop/keyspace"
)

// fakeRunner records the programs that it runs.
type fakeRunner struct{ ran [][]string }

func (r *fakeRunner) Command(_ context.Context, args []string) tea.ExecCommand {
	r.ran = append(r.ran, args)
	return nil
}

// Footer, help, notices and remedies name a key of the configuration, and only that key works.
func TestAChangedKeyIsNamedAndWorksEverywhere(t *testing.T) {
	w := testConfig()
	w.Keys = map[string]string{"release": "ctrl+x X", "help": "f2", "live": "alt+l", "copy": "c", "page-down": "space", "pause": "P", "open": "O"}
	check.NoError(t, CheckKeys(w.Keys, nil))
	drive(t, w, func(d *driver) {
		d.size(200, 95).want("F2 help", "c copy").wantNot("? help", "y copy")
		d.press("x").want("x does nothing; F2 shows the keys")
		d.press("ctrl+x").want("copy a safe command with c").press("X").want("copy a safe command with c")
		d.press("?").want("? does nothing").press("f2").want("^X", "alt+l").press("esc")
		d.press("y").want("does nothing").press("c").want("copy from job:nightly").press("esc")
		d.press("P").want("PAUSED").press("alt+l").wantNot("PAUSED")
		d.press("5").want("^X and d on the screen", "c and d copy").wantNot("x and d on the screen")
		d.press("1", "enter").want("enter does nothing").press("O").want("newest first", "c to copy")
	})
}

func TestAKeyOfTheConfigurationThatCannotWorkIsAnError(t *testing.T) {
	logs := RowCommand{"K", "pod log", []string{"kubectl", "logs", "{host}"}}
	for name, c := range map[string]struct {
		keys     map[string]string
		commands []RowCommand
		action   string
		said     string
	}{
		"in order":         {map[string]string{"release": "ctrl+x", "quit": "q ctrl+c", "sort-left": "right", "sort-right": "left"}, []RowCommand{logs}, "", ""},
		"an action":        {map[string]string{"relase": "X"}, nil, "relase", `there is no action "relase"`},
		"a key":            {map[string]string{"release": "ctrl+1"}, nil, "release", `release: "ctrl+1" is not a key`},
		"no key":           {map[string]string{"release": " "}, nil, "release", "release: it needs a key"},
		"a reserved key":   {map[string]string{"release": "ctrl+c"}, nil, "release", "ctrl+c always quits"},
		"a clash":          {map[string]string{"release": "y"}, nil, "release", "y is a key of release and of copy on the page locks"},
		"a clash on pages": {map[string]string{"zoom-in": "left"}, nil, "zoom-in", "left is a key of zoom-in and of earlier on the page timeline"},
		"a command":        {nil, []RowCommand{{"x", "a", []string{"b"}}}, "", "x is a key of release and of command a on the page locks"},
		"two commands":     {nil, []RowCommand{logs, logs}, "", `two commands have the name "pod log"`},
		"no program":       {nil, []RowCommand{{"K", "a", nil}}, "", "run: it needs a program"},
		"from Redis":       {nil, []RowCommand{{"K", "a", []string{"{key}"}}}, "", "run: the program must not come from Redis"},
		"a placeholder":    {nil, []RowCommand{{"K", "a", []string{"b", "-n={pod}"}}}, "", "run: there is no {pod}; there are {key} {owner}"},
		"a command's key":  {nil, []RowCommand{{"hyper+x", "a", []string{"b"}}}, "", `key: "hyper+x" is not a key`},
	} {
		err := CheckKeys(c.keys, c.commands)
		if c.said == "" {
			check.True(t, err == nil, "%s: %v", name, err)
			continue
		}
		if e, ok := errors.AsType[*KeyError](err); !ok || e.Action != c.action || !strings.Contains(e.Error(), c.said) || e.Action == "" && e.Command != len(c.commands)-1 {
			t.Errorf("%s: %+v, want %s", name, err, c.said)
		}
	}
}

// The values come from Redis: a value is one argument, and never a flag.
func TestACommandRunsWithTheValuesOfTheSelectedLock(t *testing.T) {
	server := &fakeServer{locks: []keyspace.Lock{
		{Key: "a; rm -rf $HOME", Format: "f", Node: "10.0.0.1:6379", DB: 2, Holders: []keyspace.Holder{{ID: "tok", Label: "web-1.prod:4711", Addr: "10.0.0.9:5000", Count: 1}}},
		{Key: "plain", Format: "f", Holders: []keyspace.Holder{{ID: "tok", Count: 1}}},
		{Key: "--all", Format: "f", Holders: []keyspace.Holder{{ID: "-rf", Count: 1}}},
	}}
	runner := &fakeRunner{}
	w := Config{Source: server, Runner: runner, Commands: []RowCommand{
		{"K", "all", []string{"p", "-n", "{key}", "x={owner}", "{token}", "{host}", "{pid}", "{client}", "{format}", "{node}", "{db}"}},
		{"alt+k", "key", []string{"p", "{key}"}},
		{"ctrl+k", "flag", []string{"p", "--name={key}"}},
	}}
	check.NoError(t, CheckKeys(nil, w.Commands))
	drive(t, w, func(d *driver) {
		d.size(140, 30).want("K all", "^K flag").press(":").enter("lock a; rm -rf $HOME").press("enter", "K")
		want := []string{"p", "-n", "a; rm -rf $HOME", "x=web-1.prod:4711", "tok", "web-1.prod", "4711", "10.0.0.9:5000", "f", "10.0.0.1:6379", "2"}
		check.True(t, len(runner.ran) == 1 && slices.Equal(runner.ran[0], want), "ran %q, want %q", runner.ran, want)
		d.press(":").enter("lock plain").press("enter", "K").want("all: this lock has no {host}")
		d.press(":").enter("lock --all").press("enter", "alt+k").want("key: the value of {key} begins with - and would be a flag")
		check.True(t, len(runner.ran) == 1, "it ran %q", runner.ran[1:])
		d.press("ctrl+k")
		check.True(t, len(runner.ran) == 2 && runner.ran[1][1] == "--name=--all", "ran %q", runner.ran)
		d.deliver(programMsg{"flag", errors.New("exit status 1")})
		d.want("flag: exit status 1").press("2", "K").want("it works on: locks, one lock, findings")
	})
}
