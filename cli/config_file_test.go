package cli

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/tui"
)

// checked runs config --check on the lines of a file.
func checked(t *testing.T, lines ...string) outcome {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, strings.Join(lines, "\n")+"\n")
	return locktop(t, "config", "--check", path)
}

// configSchema returns the schema of the configuration and those of a context and of a command.
func configSchema(t *testing.T) (file, context, command *jsonschema.Schema) {
	t.Helper()
	s := check.Must(jsonschema.NewCompiler().Compile("../docs/config.schema.json"))(t)
	return s, s.Properties["contexts"].AdditionalProperties.(*jsonschema.Schema), s.Properties["commands"].Items2020
}

func TestTheSchemaOfTheConfigurationHasTheKeysOfTheReader(t *testing.T) {
	file, context, command := configSchema(t)
	for text, of := range map[string]*jsonschema.Schema{"x: 1": file, "contexts: {a: {x: 1}}": context, "commands: [{x: 1}]": command} {
		_, keys, _ := strings.Cut(strings.TrimSpace(checked(t, text).errors), "there are ")
		read := strings.Split(keys, ", ")
		slices.Sort(read)
		known := slices.Sorted(maps.Keys(of.Properties))
		check.True(t, slices.Equal(read, known), "%s: a file can have %v\nthe schema has %v", text, read, known)
	}
	var actions []any
	for _, a := range tui.Actions() {
		actions = append(actions, a.Name)
	}
	known := file.Properties["keys"].PropertyNames.Enum.Values
	check.True(t, slices.Equal(known, actions), "the actions are %v\nthe schema has %v", actions, known)
	if known := context.Properties["theme"].Enum.Values; len(known) != len(tui.Themes()) || slices.ContainsFunc(tui.Themes(), func(name string) bool { return !slices.Contains(known, any(name)) }) {
		t.Errorf("the themes are %v\nthe schema has %v", tui.Themes(), known)
	}
	var example struct{ Contexts map[string]map[string]any }
	check.NoError(t, yaml.Unmarshal([]byte(locktop(t, "config").out), &example))
	for key, of := range context.Properties {
		initial, active := example.Contexts["example"][key]
		if (of.Default != nil) != active || active && of.Description == "" || active && !slices.Contains([]any{false}, initial) && len(initial.([]any)) > 0 {
			t.Errorf("%s: the default of the example is %v, and that of the schema %v", key, initial, of.Default)
		}
	}
}

// The reader and the schema agree on a file, and an error of the reader is one line with the
// number of the wrong line. It quotes no value, because a value may be a password.
func TestAnErrorInTheConfigurationNamesItsLine(t *testing.T) {
	file, _, _ := configSchema(t)
	for name, c := range map[string]struct {
		lines    []string
		said     string
		schemaOK bool // only the reader sees the error
	}{
		"in order":         {[]string{"contexts:", "  a:", "    url: redis://10.0.0.5", "keys:", "  release: ctrl+x", "commands:", "- {key: K, name: log, run: [kubectl, logs, '{host}']}"}, "", true},
		"empty":            {nil, "", true},
		"an unknown key":   {[]string{"contexts:", "  a:", "    colour: c4nary"}, `line 3: there is no key "colour" here; there are url, password_command,`, false},
		"of a command":     {[]string{"commands:", "- key: K", "  args: [c4nary]"}, `line 3: there is no key "args" here; there are key, name, run`, false},
		"above":            {[]string{"keys: {}", "context: c4nary"}, `line 2: there is no key "context" here; there are contexts, keys, commands`, false},
		"a bool":           {[]string{"contexts:", "  a:", "    production: c4nary"}, "line 3: unexpected value; valid is true or false", false},
		"a list":           {[]string{"contexts:", "  a:", "    overdue: c4nary"}, "line 3: unexpected value; valid is a list like [a, b]", false},
		"a mapping":        {[]string{"keys: c4nary"}, "line 1: unexpected value; valid is a mapping of keys", false},
		"twice":            {[]string{"contexts:", "  a:", "    url: c4nary", "    url: c4nary"}, "line 4: the key is there twice", true},
		"an address":       {[]string{"contexts:", "  a: {}", "  b:", "    readonly: true", "    url: http://x:c4nary@y"}, "line 5: the url of context b is not a Redis address", true},
		"a limit":          {[]string{"contexts:", "  a:", "    overdue: [c4nary]"}, "line 3: overdue of context a: one of them is not a limit", true},
		"a theme":          {[]string{"contexts:", "  a:", "    theme: c4nary"}, "line 3: theme of context a: there are system, dark", false},
		"a glob":           {[]string{"contexts:", "  a:", "    locks: ['']"}, "line 3: locks of context a: a glob is empty", true},
		"a path":           {[]string{"contexts:", "  a:", "    cacert: c4nary"}, "line 3: cacert of context a is not an absolute path", true},
		"no Sentinel":      {[]string{"contexts:", "  a:", "    master: c4nary"}, "line 3: context a has options of Sentinels, but no sentinel", true},
		"an action":        {[]string{"keys:", "  quit: X", "  relase: X"}, `line 3: there is no action "relase" (did you mean release?)`, false},
		"a strange action": {[]string{"keys:", "  make-coffee: X"}, `line 2: there is no action "make-coffee" (locktop config lists them)`, false},
		"a key name":       {[]string{"keys:", "  release: strg+x"}, `line 2: release: "strg+x" is not a key`, true},
		"a clash":          {[]string{"keys:", "  copy: y", "  release: y"}, "line 3: y is a key of release and of copy on the page locks", true},
		"a command's key":  {[]string{"commands:", "- {key: K, name: a, run: [a]}", "- {key: x, name: b, run: [b]}"}, "line 3: x is a key of release and of command b on the page locks", true},
		"a placeholder":    {[]string{"commands:", "- {key: K, name: a, run: [a, '{pod}']}"}, "line 2: run: there is no {pod}; there are {key}", true},
		"no program":       {[]string{"commands:", "- {key: K, name: a, run: []}"}, "line 2: run: it needs a program", false},
	} {
		got := checked(t, c.lines...)
		if c.said == "" {
			check.True(t, got.code == exitFine && strings.Contains(got.out, "is in order"), "%s: exit code %d, %s", name, got.code, got.errors)
		} else if got.code != exitUsage || strings.Count(got.errors, "\n") != 1 || !strings.Contains(got.errors, "config.yaml: "+c.said) || strings.Contains(got.errors, "c4nary") {
			t.Errorf("%s: exit code %d, %q; want %q", name, got.code, got.errors, c.said)
		}
		var v any
		err := yaml.Unmarshal([]byte(strings.Join(c.lines, "\n")), &v)
		check.Require(t, err == nil || name == "twice", "%v", err)
		err = file.Validate(v)
		check.True(t, v == nil || (err == nil) == c.schemaOK, "%s: the schema says %v", name, err)
	}
}

// The example has every key. The value of each key that is a comment is valid, too.
func TestTheExampleOfAConfigurationIsAccepted(t *testing.T) {
	example := locktop(t, "config").out
	checked(t, example).prints(t, exitFine, "1 context, ")
	comment := regexp.MustCompile(`(?m)^    # (\w+): `)
	seen := 0
	for _, at := range comment.FindAllStringSubmatchIndex(example, -1) {
		key := example[at[2]:at[3]]
		text := example[:at[0]] + "    " + example[at[2]:]
		if strings.HasPrefix(key, "sentinel_") || key == "master" {
			text = strings.Replace(text, "    # sentinel: ", "    sentinel: ", 1)
		}
		got := checked(t, text)
		check.True(t, got.code == exitFine, "%s: %s", key, got.errors)
		seen++
	}
	_, context, _ := configSchema(t)
	for _, of := range context.Properties {
		if of.Default != nil {
			seen++
		}
	}
	check.True(t, seen == len(context.Properties), "%d keys, the schema has %d", seen, len(context.Properties))
	commands := strings.NewReplacer("commands: []", "commands:", "\n#  - ", "\n  - ", "\n#    ", "\n    ").Replace(example)
	checked(t, commands).prints(t, exitFine, "1 command\n")
}

func TestAScreenNamesAWrongKeyOfTheConfiguration(t *testing.T) {
	configure(t, 0o600, "keys:", "  release: ctrl+x", "  copy: ctrl+x")
	for _, args := range [][]string{nil, {"demo"}} {
		locktop(t, args...).fails(t, exitUsage, "config.yaml: line 3: ctrl+x is a key of release and of copy")
	}
	configure(t, 0o622, "commands: []")
	locktop(t, "demo").fails(t, exitUsage, "others may change it")
}

// A command of the configuration has the terminal, and Ctrl-C ends it and not locktop.
func TestACommandRunsInPlaceOfTheScreen(t *testing.T) {
	testtier.Long(t, "it starts the screen in a terminal")
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a b;c", "web-1.prod:4711")
	configure(t, 0o600,
		"commands:",
		`- {key: K, name: show, run: [sh, -c, 'test -t 0 && test -t 1 && echo "on a terminal: $1 $2"; exec sleep 1000', x, "{host}", "{key}"]}`,
	)
	term := openTerminal(t, 80, 24, "-u", "redis://"+addr).want("lock:a b;c", "K show").press("K").want("on a terminal: web-1.prod lock:a b;c")
	term.press("C-c").want("press Enter to return to locktop").press("Enter").want("show: ", "lock:a b;c", "live")
	term.quit()
}
