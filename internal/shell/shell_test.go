package shell_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"locktop/internal/check"
	"locktop/internal/shell"
	"locktop/internal/testtier"
)

// stub returns a directory with a program locktop that writes its arguments to
// stdout, each followed by a NUL.
var stub = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "locktop-shell")
	if err != nil {
		return "", err
	}
	script := "#!/bin/sh\nfor a; do printf '%s\\000' \"$a\"; done\n"
	return dir, os.WriteFile(filepath.Join(dir, "locktop"), []byte(script), 0o700)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := stub(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// arguments runs a line in a shell, in an empty directory, and returns the
// arguments of the stub. The line must have no other effect: no file, no
// output.
func arguments(t *testing.T, sh, line string) []string {
	t.Helper()
	dir := check.Must(stub())(t)
	run := exec.Command(sh)
	run.Dir = t.TempDir()
	run.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	run.Stdin = strings.NewReader(line + "\n") // on stdin, because the length of one argument is limited
	var errs bytes.Buffer
	run.Stderr = &errs
	out, err := run.Output()
	check.Require(t, err == nil && errs.Len() == 0, "%s: %s: %v %s", sh, line, err, &errs)
	if made, err := os.ReadDir(run.Dir); err != nil || len(made) > 0 {
		t.Fatalf("%s: %s makes %v, %v", sh, line, made, err)
	}
	got := strings.Split(string(out), "\x00")
	last := got[len(got)-1]
	check.Require(t, last == "", "%s: %s prints %q", sh, line, last)
	return got[:len(got)-1]
}

// checkLine lets a shell split a command line and compares the words.
func checkLine(t *testing.T, sh string, words ...string) {
	t.Helper()
	line, ok := shell.Line(append([]string{"locktop"}, words...)...)
	if possible := !slices.ContainsFunc(words, func(s string) bool {
		return strings.Contains(s, "\x00") || strings.HasSuffix(s, "\n") || len(s) > shell.MaxWord
	}); ok != possible {
		t.Fatalf("%.200q: ok is %v", words, ok)
	}
	if !ok {
		return
	}
	check.Require(t, !strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }), "%q is not printable ASCII", line)
	got := arguments(t, sh, line)
	check.Require(t, slices.Equal(got, words), "%s takes %s\nfor  %.200q\nwant %.200q", sh, line, got, words)
}

func needSh(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
}

// hostile are names that have an effect in a shell if they are not quoted, or
// that quoting easily changes.
var hostile = []string{
	"", "lock:a", `lock:a'$(touch pwned)'b`, "lock:`touch pwned`", `lock:"; touch pwned; "`, "a; touch pwned #", "a&&touch pwned", "|touch pwned",
	`App\Jobs\X`, `\`, `\\`, `a\nb`, `\047`, "%s%n%d", "100%", "%", "-n", "--write", "-", "--", "=ls", "a=b", "~", "~root", "*", "?", "[a]", "{a,b}",
	"$HOME", "${PATH}", "!!", "!x", "a'!'b", "'", "''", `'"'"'`, `"`, " ", "  a  ", "\t", "a\nb", "a\n", "\n", "\n\n", "\r", "a\rb", "\x00", "a\x00b",
	"\x1b[2J\x1b]0;x\a", "\x1b]52;c;eA==\a", "\x9b2J", "\u009b2J", "\xff\xfe", "ok\u202egnp", "a\u200bb", "\u2028", "Zürich 東京 🔒", "e\u0301",
	"\x1b-1'%s\\\"!`$(touch pwned)", "-\x01", "1\x012", "\x017", "#", "a#b", "(", ")", "<x", ">pwned", "$'\\n'", "%%\x01", "\x7f", "fi", "done",
}

func TestAShellGivesTheCommandExactlyWhatWasMeant(t *testing.T) {
	needSh(t)
	for _, sh := range []string{"sh", "dash", "bash", "zsh", "ksh"} {
		path, err := exec.LookPath(sh)
		if err != nil {
			continue
		}
		for i, s := range hostile {
			if sh != "sh" && i%testtier.Size(5, 1, 1) > 0 {
				continue
			}
			checkLine(t, path, "release", "-u", "redis://h:1", "--write", "--", s, s)
		}
	}
	checkLine(t, "sh", strings.Repeat("x", shell.MaxWord))
	checkLine(t, "sh", strings.Repeat("\x01", shell.MaxWord))
	checkLine(t, "sh", strings.Repeat("x", shell.MaxWord+1))
}

func TestWordsThatNeedNoQuotesHaveNone(t *testing.T) {
	for in, want := range map[string]string{
		"lock:orders:4711": "lock:orders:4711", "redis://10.0.0.1:6379/2": "redis://10.0.0.1:6379/2", "": "''", "two words": "'two words'",
		"it's": `'it'\''s'`, "a\x1b": `"$(printf 'a\033')"`, "=a": "'=a'",
	} {
		got, ok := shell.Word(in)
		check.True(t, got == want && ok, "%q is %s, want %s", in, got, want)
	}
}

// In double quotes, an interactive shell expands ! from its history before it
// processes the quotes.
func TestNoWordHasHistoryOutsideOfSingleQuotes(t *testing.T) {
	for _, s := range []string{"a!b\x01", "!\x01", "'!'\x01"} {
		got, _ := shell.Word(s)
		check.True(t, !strings.Contains(got, "!"), "%q is %s", s, got)
	}
}

func FuzzShell(f *testing.F) {
	needSh(f)
	for i, s := range hostile {
		f.Add(s, hostile[len(hostile)-1-i])
	}
	f.Fuzz(func(t *testing.T, a, b string) { checkLine(t, "sh", a, b) })
}

func TestSplitReadsQuotesAsAShellDoes(t *testing.T) {
	for line, want := range map[string][]string{
		"":                       nil,
		"  a \t b\n":             {"a", "b"},
		`pass show 'redis/prod'`: {"pass", "show", "redis/prod"},
		`a"b c"'d e'f`:           {"ab cd ef"},
		`'' ""`:                  {"", ""},
		`a\ b "c\"d\e" 'f\g'`:    {"a b", `c"d\e`, `f\g`},
		`"it's" 'say "x"'`:       {"it's", `say "x"`},
		`é '…'`:                  {"é", "…"},
		`a\`:                     nil,
		`a 'b`:                   nil,
		`"`:                      nil,
	} {
		got, err := shell.Split(line)
		check.True(t, slices.Equal(got, want) && (err != nil) == (want == nil && line != ""),
			"Split(%q) = %q, %v; want %q", line, got, err, want)
		if want == nil {
			continue
		}
		if _, err := exec.LookPath("sh"); err != nil {
			continue
		}
		out, err := exec.Command("sh", "-c", `printf '%s\0' `+strings.TrimSpace(line)).Output()
		said := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		check.True(t, err == nil && slices.Equal(said, want), "a shell splits %q into %q, %v; want %q", line, said, err, want)
	}
}

func TestSplitReadsWhatLineWrites(t *testing.T) {
	words := []string{"a", "", "it's", `\`, `"`, "$x", "~", " b ", "!", "`"}
	line, ok := shell.Line(words...)
	got, err := shell.Split(line)
	check.True(t, ok && err == nil && slices.Equal(got, words), "%q became %q, %v", line, got, err)
}
