package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/keyspace"
)

// Hundreds of findings of one kind are one paragraph with their number, so rare
// findings stay visible.
func TestDoctorGroupsFindingsOfAKind(t *testing.T) {
	var d diagnosis
	for i := range 500 {
		d.findings = append(d.findings, keyspace.Finding{
			ID: "overdue", Severity: keyspace.Warning, Lock: keyspace.ID{Key: fmt.Sprintf("job:%d", i)}, Text: "Held for 12m.", Remedy: "Look at its holder.",
		})
	}
	d.findings = append(d.findings, keyspace.Finding{
		ID: "starving", Severity: keyspace.Warning, Lock: keyspace.ID{Key: "queue"}, Text: "A waiter was overtaken.", Remedy: "Use a fair lock.",
	})
	var out strings.Builder
	check.NoError(t, d.write(&out, false))
	got, _, _ := strings.Cut(out.String(), "\nServer")
	want := `
Locks
  warning: overdue: 500 locks
    job:0: Held for 12m.
    job:1: Held for 12m.
    job:2: Held for 12m.
    job:3: Held for 12m.
    job:4: Held for 12m.
    and 495 more: locktop list --stuck, or locktop doctor --json
    Look at its holder.
  warning: starving: 1 lock
    queue: A waiter was overtaken.
    Use a fair lock.
`
	check.True(t, strings.HasSuffix(got, want), "got\n%s\nwant\n%s", got, want)
}

// The version decides whether doctor names HOTKEYS; a server that shows no requests is named with
// the reason.
func TestDoctorSaysWhetherRequestsAreSeen(t *testing.T) {
	for version, has := range map[string]bool{"8.6.0": true, "8.10.1": true, "9.0.0": true, "8.4.2": false, "7.2.4": false, "": false} {
		n := keyspace.Node{Server: keyspace.Server{Product: "redis", Version: version}}
		check.True(t, hasHotKeys(n) == has, "version %q has HOTKEYS: %v", version, !has)
		n.Product = "valkey"
		check.False(t, hasHotKeys(n), "Valkey %s has HOTKEYS", version)
	}
	got := requestLines([]keyspace.Node{{Up: true, AskBlind: "LFU", Server: keyspace.Server{Addr: "a:1"}}, {Up: true}, {AskBlind: "it is down"}})
	want := []string{"seen, as yes or no within the last second", "not seen on a:1: LFU"}
	check.True(t, slices.Equal(got, want), "got %q, want %q", got, want)
}
