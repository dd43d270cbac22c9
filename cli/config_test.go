package cli

import (
	"bytes"
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

	"go.yaml.in/yaml/v3"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/servertest"
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
	addr := servertest.RedisForTest(t).Addr()
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
	t.Setenv("LOCKTOP_CONTEXT", "prod")
	doc, _ = listedOn(t)
	lockNamed(t, doc, "mine:1")
	locktop(t, "list", "-p", "1").fails(t, exitNoConnect, "127.0.0.1:1")

	var s selection
	var look screenFlags
	var c connect.Flags
	check.NoError(t, c.FlagSet().Parse([]string{"--context", "prod"}))
	may := writeFlags{}
	_, err := applyContext(&c, &s, &look, &may)
	check.True(t, err == nil && may.production && look.theme == "mono", "%v, %+v, %+v", err, may, look)
	may.write = true
	err = may.check(&c)
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
	addr := servertest.RedisForTest(t).Addr()
	t.Setenv("LOCKTOP_URL", "redis://"+addr)
	configure(t, 0o600, "contexts:", "  a: {url: 'redis://127.0.0.1:1'}")
	for _, further := range [][]string{nil, {"--redlock", "redis://" + addr}, {"--control", "redis://" + addr, "--agents", "1"}} {
		got := locktop(t, append([]string{"load", "--context", "a", "--duration", "100ms"}, further...)...)
		got.fails(t, exitUsage, "this command does not use --context")
	}
}

// Limits decide when a hold is overdue, and its state. Those of flags precede
// those of the context, and the first that matches counts.
func TestLimitsSayWhenAHoldIsOverdue(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	var dumps []any // of a token that is older than the idle time of its key, and of one that is younger, of a client whose clock is ahead
	for _, made := range []time.Time{time.Now().Add(-2 * time.Hour), time.Now()} {
		ms := fmt.Sprintf("%012x", made.UnixMilli())
		send(t, addr, "SET", "lock", "pod-7~"+ms[:8]+"-"+ms[8:]+"-7a4a-8a4a-4a4a4a4a4a4a")
		dumps = append(dumps, sent(t, addr, "DUMP", "lock").Val())
	}
	send(t, addr, "DEL", "lock")
	configure(t, 0o600, "contexts:", "  prod:", "    url: redis://"+addr, "    overdue: ['lock:job:*=10m', '*=2h']")
	for _, c := range []struct{ flags, overdue string }{
		{"", "lock:job:a lock:job:b"},
		{"--overdue lock:job:a=3h", "lock:job:b"},
		{"--overdue never", ""},
		{"--overdue lock:leader=30m --overdue lock:odd=name=30m --overdue 24h", "lock:leader lock:odd=name"},
	} {
		for i, key := range []string{"job:a", "job:b", "leader", "odd=name"} {
			send(t, addr, "RESTORE", "lock:"+key, 0, dumps[i%2], "REPLACE", "IDLETIME", 3600) // it has not changed for an hour
		}
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

const (
	configSchema  = "../docs/config.schema.json"
	contextSchema = "properties/contexts/additionalProperties/properties" // the part with the keys of a context
)

func TestTheSchemaOfTheConfigurationHasTheKeysOfTheReader(t *testing.T) {
	for text, part := range map[string]string{"x: 1": "properties", "contexts: {a: {x: 1}}": contextSchema, "commands: [{x: 1}]": "properties/commands/items/properties"} {
		_, keys, _ := strings.Cut(strings.TrimSpace(checked(t, text).errors), "there are ")
		read := strings.Split(keys, ", ")
		slices.Sort(read)
		known := slices.Sorted(maps.Keys(check.Part[map[string]any](t, configSchema, part)))
		check.True(t, slices.Equal(read, known), "%s: a file can have %v\nthe schema has %v", text, read, known)
	}
	var actions []any
	for _, a := range tui.Actions() {
		actions = append(actions, a.Name)
	}
	known := check.Part[[]any](t, configSchema, "properties/keys/propertyNames/enum")
	check.True(t, slices.Equal(known, actions), "the actions are %v\nthe schema has %v", actions, known)
	if known := check.Part[[]any](t, configSchema, contextSchema+"/theme/enum"); len(known) != len(tui.Themes()) || slices.ContainsFunc(tui.Themes(), func(name string) bool { return !slices.Contains(known, any(name)) }) {
		t.Errorf("the themes are %v\nthe schema has %v", tui.Themes(), known)
	}
	var example struct{ Contexts map[string]map[string]any }
	check.NoError(t, yaml.Unmarshal([]byte(locktop(t, "config").out), &example))
	for key, of := range check.Part[map[string]any](t, configSchema, contextSchema) {
		value := of.(map[string]any)["default"]
		description, _ := of.(map[string]any)["description"].(string)
		initial, active := example.Contexts["example"][key]
		if (value != nil) != active || active && description == "" || active && !slices.Contains([]any{false}, initial) && len(initial.([]any)) > 0 {
			t.Errorf("%s: the default of the example is %v, and that of the schema %v", key, initial, value)
		}
	}
}

// An error of the reader is one line with the number of the wrong line. It quotes no value, because
// a value may be a password. The lab/compat checks that the schema agrees.
func TestAnErrorInTheConfigurationNamesItsLine(t *testing.T) {
	var table map[string]struct {
		Lines  []string
		Said   string
		Schema bool
	}
	decoder := yaml.NewDecoder(bytes.NewReader(check.Must(os.ReadFile("testdata/config.yaml"))(t)))
	decoder.KnownFields(true)
	check.NoError(t, decoder.Decode(&table))
	for name, c := range table {
		got := checked(t, c.Lines...)
		if c.Said == "" {
			check.True(t, got.code == exitFine && strings.Contains(got.out, "is valid:"), "%s: exit code %d, %s", name, got.code, got.errors)
		} else if got.code != exitUsage || strings.Count(got.errors, "\n") != 1 || !strings.Contains(got.errors, "config.yaml: "+c.Said) || strings.Contains(got.errors, "c4nary") {
			t.Errorf("%s: exit code %d, %q; want %q", name, got.code, got.errors, c.Said)
		}
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
	context := check.Part[map[string]any](t, configSchema, contextSchema)
	for _, of := range context {
		if of.(map[string]any)["default"] != nil {
			seen++
		}
	}
	check.True(t, seen == len(context), "%d keys, the schema has %d", seen, len(context))
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
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "lock:a b;c", "web-1.prod:4711")
	configure(t, 0o600,
		"commands:",
		`- {key: K, name: show, run: [sh, -c, 'test -t 0 && test -t 1 && echo "on a terminal: $1 $2"; exec sleep 1000', x, "{host}", "{key}"]}`,
	)
	term := openTerminal(t, 80, 24, "-u", "redis://"+addr).want("lock:a b;c", "K show").press("K").want("on a terminal: web-1.prod lock:a b;c")
	term.press("C-c").want("press Enter to return to locktop").press("Enter").want("show: ", "lock:a b;c", "live")
	term.quit()
}
