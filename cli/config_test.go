package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/tui"
)

// configure writes a configuration file in the place where locktop reads it.
func configure(t *testing.T, mode os.FileMode, lines ...string) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	configureIn(t, home, mode, lines...)
}

// configureIn writes a configuration file for processes with another XDG_CONFIG_HOME.
func configureIn(t *testing.T, home string, mode os.FileMode, lines ...string) {
	t.Helper()
	check.NoError(t, os.MkdirAll(filepath.Join(home, "locktop"), 0o700))
	path := filepath.Join(home, "locktop", "config.yaml")
	check.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), mode))
	check.NoError(t, os.Chmod(path, mode)) // also the bits that umask forbids
}

func TestAContextGivesAddressAndSelection(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "mine:1", "anything at all")
	send(t, addr, "CONFIG", "SET", "requirepass", "c4nary")
	t.Setenv("LOCKTOP_URL", "redis://127.0.0.1:1")
	configure(t, 0o600,
		"contexts:",
		"  prod:",
		"    url: redis://:c4nary@"+addr,
		"    production: true",
		"    readonly: true",
		"    theme: mono",
		"    locks: ['mine:*']",
	)
	doc, said := listedOn(t, "--context", "prod")
	lockNamed(t, doc, "mine:1")
	check.True(t, said == "", "it says %q", said)

	var s selection
	var look screenFlags
	var c connect.Flags
	check.NoError(t, c.FlagSet().Parse([]string{"--context", "prod"}))
	may := writeFlags{}
	err := applyContext(&c, &s, &look, &may)
	check.True(t, err == nil && may.production && look.theme == "mono", "%v, %+v, %+v", err, may, look)
	may.write = true
	err = applyContext(&c, &s, &look, &may)
	check.True(t, err != nil && asExitError(err).code == exitUsage, "--write where the context is read-only: %v", err)
}

func TestAConfigurationErrorIsOneLine(t *testing.T) {
	writable := filepath.Join(t.TempDir(), "password")
	check.NoError(t, errors.Join(os.WriteFile(writable, []byte("c4nary"), 0o600), os.Chmod(writable, 0o666)))
	for _, c := range []struct {
		name  string
		mode  os.FileMode
		lines []string
		said  string
	}{
		{"no YAML", 0o600, []string{"contexts: [c4nary"}, "line 1: unexpected value"},
		{"a wrong limit", 0o600, []string{"contexts:", "  a:", "    overdue: [c4nary]"}, "overdue of context a: one of them is not a limit like jobs:*=2h"},
		{"another context", 0o600, []string{"contexts:", "  b: {}", "  c: {}"}, `defines no context "a" (there are b, c)`},
		{"an empty file", 0o600, nil, `defines no context "a"`},
		{"a command and a file", 0o600, []string{"contexts:", "  a: {password_command: c4nary, password_file: /c4nary}"}, "password_command and password_file of context a contradict each other"},
		{"a command that fails", 0o600, []string{"contexts:", "  a: {password_command: 'false c4nary'}"}, "password_command of context a: exit status 1"},
		{"a file that is not there", 0o600, []string{"contexts:", "  a: {password_file: /no/such/file}"}, "password_file of context a: open /no/such/file: no such file"},
		{"a relative file", 0o600, []string{"contexts:", "  a: {password_file: c4nary}"}, "password_file of context a is not an absolute path"},
		{"a command that others may change", 0o622, []string{"contexts:", "  a: {password_command: c4nary}"}, "says where to connect, and others may change it (chmod 600 "},
		{"an address that others may change", 0o666, []string{"contexts:", "  a: {url: 'redis://127.0.0.1:1'}"}, "says where to connect, and others may change it (chmod 600 "},
		{"a password file that others may change", 0o600, []string{"contexts:", "  a: {password_file: " + writable + "}"}, "password_file of context a: others may change " + writable + " (chmod 600 "},
		{"open to all", 0o644, []string{"contexts:", "  a:", "    url: redis://:c4nary@127.0.0.1:1"}, "holds a password, and others may read it"},
	} {
		configure(t, c.mode, c.lines...)
		got := locktop(t, "list", "--context", "a")
		code := exitUsage
		if strings.Contains(c.name, "that fails") || strings.Contains(c.name, "not there") || strings.Contains(c.name, "a password file") {
			code = exitNoConnect
		}
		got.fails(t, code, c.said)
		check.False(t, strings.Contains(got.errors, "c4nary"), "%s: the password is in %q", c.name, got.errors)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	locktop(t, "list", "--context", "a").fails(t, exitUsage, "there is no ")
	locktop(t, "list", "--context", "a", "-p", "1").fails(t, exitUsage, "--context already says where")
}

// A load never runs on another server than the named one: it takes no context, and says so.
func TestALoadRefusesAContext(t *testing.T) {
	addr := server.ForTest(t).Addr()
	t.Setenv("LOCKTOP_URL", "redis://"+addr)
	configure(t, 0o600, "contexts:", "  a: {url: 'redis://127.0.0.1:1'}")
	for _, further := range [][]string{nil, {"--redlock", "redis://" + addr}, {"--control", "redis://" + addr, "--agents", "1"}} {
		got := locktop(t, append([]string{"load", "--context", "a", "--duration", "100ms"}, further...)...)
		got.fails(t, exitUsage, "this command does not use --context")
	}
}

// uuid1 returns a token as redis-py makes it. It contains the time.
func uuid1(at time.Time) string {
	ticks := uint64(at.UnixNano())/100 + 0x01B21DD213814000
	return fmt.Sprintf("%08x%04x1%03x8abc0242ac120002", ticks&0xffffffff, ticks>>32&0xffff, ticks>>48)
}

// Limits decide when a hold is overdue, and its state. Those of flags precede
// those of the context, and the first that matches counts.
func TestLimitsSayWhenAHoldIsOverdue(t *testing.T) {
	addr := server.ForTest(t).Addr()
	old := uuid1(time.Now().Add(-time.Hour)) // a token that contains the start of the hold
	for _, key := range []string{"job:a", "job:b", "leader", "odd=name"} {
		send(t, addr, "SET", "lock:"+key, old)
	}
	configure(t, 0o600, "contexts:", "  prod:", "    url: redis://"+addr, "    overdue: ['lock:job:*=10m', '*=2h']")
	for _, c := range []struct{ flags, overdue string }{
		{"", "lock:job:a lock:job:b"},
		{"--overdue lock:job:a=3h", "lock:job:b"},
		{"--overdue never", ""},
		{"--overdue lock:leader=30m --overdue lock:odd=name=30m --overdue 24h", "lock:leader lock:odd=name"},
	} {
		doc, said := listedOn(t, append([]string{"--context", "prod"}, strings.Fields(c.flags)...)...)
		var overdue []string
		for _, l := range doc.Locks {
			is := slices.ContainsFunc(l.Findings, func(f render.Finding) bool { return f.ID == "overdue" })
			if is {
				overdue = append(overdue, l.Key)
			}
			check.True(t, (l.State == "stuck") == is, "%s: %s is %s, overdue: %t", c.flags, l.Key, l.State, is)
		}
		got := strings.Join(overdue, " ")
		check.True(t, got == c.overdue && said == "", "%s: overdue are %q, want %q; it says %q", c.flags, got, c.overdue, said)
	}
	for _, bad := range []string{"job:*", "job:*=", "=1h", "job:*=-1s", "job:*=0s", "banana"} {
		locktop(t, "list", "--overdue", bad).fails(t, exitUsage, "--overdue: not a valid limit, like jobs:*=2h")
	}
}

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
