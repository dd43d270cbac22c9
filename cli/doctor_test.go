package cli

import (
	"fmt"
	"strings"
	"testing"

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
	if err := d.write(&out, false); err != nil {
		t.Fatal(err)
	}
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
	if !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
