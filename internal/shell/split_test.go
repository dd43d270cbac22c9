package shell

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
)

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
		got, err := Split(line)
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
	line, ok := Line(words...)
	got, err := Split(line)
	check.True(t, ok && err == nil && slices.Equal(got, words), "%q became %q, %v", line, got, err)
}
