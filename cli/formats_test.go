package cli

import (
	"bytes"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/keyspace/formats"
	"locktop/tui/widget"
)

func TestThePageOfFormatsIsUpToDate(t *testing.T) {
	want := run(t, "formats", "--markdown")
	page := readText(t, "../docs/formats.md")
	check.True(t, page == want, "docs/formats.md is stale; make it again: go run . formats --markdown > docs/formats.md")
}

func TestEveryFormatIsInTheTableAndInTheJSON(t *testing.T) {
	doc := decoded[struct{ Formats []jsonFormat }](t, run(t, "formats", "--json"))
	table := strings.Split(run(t, "formats"), "\n")[1:]
	for i, f := range formats.All() {
		j := doc.Formats[i]
		check.True(t, j.Name == f.Name && len(j.Samples) == len(f.Samples) && len(j.Kinds) != 0 && j.Tells != "" && j.Confidence != "no",
			"%s is in the JSON as %+v", f.Name, j)
		check.True(t, strings.HasPrefix(table[i], f.Name+" ") && strings.Contains(table[i], f.Signature),
			"%s is in the table as %q", f.Name, table[i])
	}
}

func TestTheTableOfFormatsFitsTheTerminal(t *testing.T) {
	var all []jsonFormat
	for _, f := range formats.All() {
		all = append(all, formatOf(f))
	}
	for width, want := range map[int]string{
		80:  "FORMAT TYPE KIND CONFIDENCE LIBRARY; in wider windows, in --json and --markdown: ACTIONS, SIGNATURE",
		100: "FORMAT TYPE KIND CONFIDENCE ACTIONS LIBRARY; in wider windows, in --json and --markdown: SIGNATURE",
		120: "FORMAT TYPE KIND CONFIDENCE ACTIONS LIBRARY SIGNATURE; ",
	} {
		var out bytes.Buffer
		check.NoError(t, writeFormatsTable(&out, all, width))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for _, line := range lines {
			w := widget.Width(line)
			check.True(t, w <= width, "%d cells in a terminal of %d: %s", w, width, line)
		}
		got := strings.Join(strings.Fields(lines[0]), " ") + "; "
		if len(lines) > 1+len(all) {
			got += lines[1+len(all)]
		}
		check.True(t, got == want, "in %d cells there are %s; want %s", width, got, want)
	}
}

func TestCommandsAreQuotedAsRedisCLITakesThem(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"SET", "a:{b}", "x/y+z==", "PX", "10"}, "SET a:{b} x/y+z== PX 10"},
		{[]string{"SET", "two words", ""}, `SET "two words" ""`},
		{[]string{"SET", "k", "\x00\xff\"\\\n"}, `SET k "\x00\xff\"\\\x0a"`},
	} {
		got := commandLine(c.argv)
		check.True(t, got == c.want, "%q is quoted as %s, want %s", c.argv, got, c.want)
	}
}

// run returns the output of a command.
func run(t *testing.T, args ...string) string {
	t.Helper()
	got := locktop(t, args...)
	check.Require(t, got.code == exitFine, "%+v", got)
	return got.out
}

func TestAnUnknownFormatIsAnsweredWithThoseThatAreLikeIt(t *testing.T) {
	for name, want := range map[string]string{
		"redison":  "there is redisson",
		"bulmq":    "there is bullmq",
		"arp":      "there is arq",
		"symfony":  "there is symfony, symfony-string",
		"lock":     "locktop formats lists them", // too many matches
		"nonsense": "locktop formats lists them",
		"":         "locktop formats lists them",
	} {
		got := nearest(name)
		check.True(t, got == want, "%q is answered with %q, want %q", name, got, want)
	}
}
