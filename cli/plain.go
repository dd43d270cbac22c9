package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// writePlain prints one sentence per lock and line, without columns and symbols, for
// screen readers and grep.
func writePlain(w io.Writer, p view) error {
	var out strings.Builder
	for _, l := range p.Locks {
		fmt.Fprintln(&out, sentence(l, p))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// sentence describes a lock with everything that the table has.
func sentence(l keyspace.Lock, p view) string {
	parts := []string{
		fmt.Sprintf("%s is %s", named(l.ID(), p.databases), heldBy(l, p.At)),
		fmt.Sprintf("%s %s", l.Format, l.Kind),
		deadline(l, p.At),
	}
	if n := l.WaiterCount(); n > 0 {
		parts = append(parts, fmt.Sprintf("%s waiting", humanize.Count(n)))
	}
	for _, f := range p.findings[l.ID()] {
		parts = append(parts, fmt.Sprintf("%s: %s", f.Severity, widget.Plain(f.Text)))
	}
	return strings.Join(parts, ", ")
}

// namesTold is the greatest number of holders in a sentence.
const namesTold = 10

// heldBy names the holders, with the count of a hold that is greater than one.
func heldBy(l keyspace.Lock, at time.Time) string {
	if len(l.Holders) == 0 {
		return "free"
	}
	var names []string
	for _, h := range l.Holders {
		if len(names) == namesTold {
			names = append(names, fmt.Sprintf("%s others", humanize.Count(len(l.Holders)-namesTold)))
			break
		}
		name := nameOf(h)
		if h.Count > 1 {
			name += fmt.Sprintf(" %s", humanize.Times(h.Count))
		}
		names = append(names, name)
	}
	held := "held"
	switch l.State(at) {
	case keyspace.ReadHeld:
		held = "read"
	case keyspace.WriteHeld:
		held = "written"
	case keyspace.Partial:
		held = "held in part"
	}
	return held + " by " + strings.Join(names, " and ")
}

func deadline(l keyspace.Lock, at time.Time) string {
	if d, ok := l.TTL(at); ok {
		return "expires in " + humanize.Left(d)
	}
	return "never expires"
}
