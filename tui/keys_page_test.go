package tui

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// keysPage returns docs/keys.md, made from the tables of keys and commands.
func keysPage() string {
	var b strings.Builder
	b.WriteString("# Keys\n\nMade from the tables in `tui/keys.go` and `tui/commands.go`; `go test ./tui -run Page -update` makes it again.\n")
	section := func(title string, wanted func(pageSet) bool) {
		fmt.Fprintf(&b, "\n## %s\n\n| key | what it does |\n| --- | --- |\n", title)
		for _, k := range bindings() {
			if k.help != "" && wanted(k.place) {
				fmt.Fprintf(&b, "| `%s` | %s |\n", k.label, strings.ReplaceAll(k.help, "|", "\\|"))
			}
		}
	}
	section("Everywhere", func(p pageSet) bool { return p == anywhere })
	section("In lists", func(p pageSet) bool { return p == onLists })
	for _, at := range allPages() {
		section(strings.ToUpper(at.String()[:1])+at.String()[1:], func(p pageSet) bool { return p&at != 0 && p != anywhere && p != onLists })
	}
	b.WriteString("\n## Commands, after `:`\n\n| command | what it does |\n| --- | --- |\n")
	for _, v := range commandSpecs() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.TrimSpace(v.name+" "+v.arg), v.help)
	}
	return b.String()
}

func TestThePageOfKeysIsFresh(t *testing.T) {
	const file = "../docs/keys.md"
	want := keysPage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is stale: go test ./tui -run Page -update makes it again", file)
	}
}
