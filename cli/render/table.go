package render

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/tui/widget"
)

// Column is a column of the table.
type Column struct {
	title string
	cell  func(View, keyspace.Lock) string
	Least int // least width in a narrow table; 0: never narrower
	Spare int // a table that is still too wide omits the column with the greatest number; 0: never
}

// columns returns the columns for p. They include the database if there are several.
func columns(p View) []Column {
	all := []Column{
		{"LOCK", func(_ View, l keyspace.Lock) string { return ShortKey(l.Key) }, 20, 0},
		{"DB", func(_ View, l keyspace.Lock) string { return strconv.Itoa(l.DB) }, 0, 0},
		{"KIND", func(_ View, l keyspace.Lock) string { return string(l.Kind) }, 0, 2},
		{"FORMAT", func(_ View, l keyspace.Lock) string { return l.Format }, 9, 1},
		{"OWNER", func(_ View, l keyspace.Lock) string { return owner(l) }, 9, 0},
		{"DEPTH", func(_ View, l keyspace.Lock) string { return l.DepthText() }, 0, 3},
		{"WAIT", func(p View, l keyspace.Lock) string { return waiting(l, p.At) }, 0, 0},
		{"HELD", func(p View, l keyspace.Lock) string { return heldSpan(l, p.At) }, 0, 0},
		{"TTL", func(p View, l keyspace.Lock) string { return Left(l, p.At) }, 0, 0},
		{"STATE", func(p View, l keyspace.Lock) string { return string(l.State(p.At)) }, 0, 0},
		{"FINDINGS", func(p View, l keyspace.Lock) string { return findingIDs(p.Findings[l.ID()]) }, 8, 0},
	}
	if !p.Databases {
		all = slices.Delete(all, 1, 2)
	}
	return all
}

// showWaiters has the names of the formats that show their waiters.
var showWaiters = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, f := range formats.All() {
		names[f.Name] = f.ShowsWaiters
	}
	return names
})

// ShowsWaiters reports whether a lock of a format shows its waiters.
func ShowsWaiters(format string) bool { return showWaiters()[format] }

// waiting returns the number of waiters, "?" if the format does not show them, and "≥1" if
// another client asks for the lock.
func waiting(l keyspace.Lock, now time.Time) string {
	switch {
	case l.WaiterCount() > 0 || ShowsWaiters(l.Format):
		return strconv.Itoa(l.WaiterCount())
	case l.Asked(now):
		return "≥1"
	default:
		return "?"
	}
}

// HidesWaiters reports whether the number of waiters of a lock on a server is unknown.
func (v View) HidesWaiters(addr string) bool {
	return slices.ContainsFunc(v.Locks, func(l *keyspace.Lock) bool { return l.Node == addr && waiting(*l, v.At) == "?" })
}

// longestPadded is the greatest width of the key column if the table has no width.
// Longer keys extend beyond the column.
const longestPadded = 40

// Table prints a header and one lock per line, with lines up to width cells if
// possible; a width of 0 means no limit.
func Table(w io.Writer, p View, width int) error {
	cols := columns(p)
	rows := [][]string{make([]string, len(cols))}
	for i, c := range cols {
		rows[0][i] = c.title
	}
	for _, l := range p.Locks {
		row := make([]string, len(cols))
		for i, c := range cols {
			row[i] = c.cell(p, *l)
		}
		rows = append(rows, row)
	}

	wide := NaturalWidths(rows)
	if width == 0 { // not a terminal: one long key does not widen all rows
		wide[0] = min(wide[0], longestPadded)
	}
	widths := Narrow(cols, wide, width)
	var out strings.Builder
	for _, row := range rows {
		if width == 0 && widget.Width(row[0]) > widths[0] {
			out.WriteString(row[0] + "  " + TableRow(row[1:], widths[1:]))
			continue
		}
		out.WriteString(TableRow(row, widths))
	}
	fmt.Fprintf(&out, "%s\n", total(p))
	return Written(w, out.String())
}

// total returns the line below the table.
func total(p View) string {
	s := humanize.Plural(len(p.Locks), "lock")
	if p.Complete || p.Cost.Scanned > 0 {
		s += " in " + humanize.Plural(p.Cost.Scanned, "key")
	}
	if !p.Complete {
		s += ", incomplete"
	}
	if hidden := p.NotShown(); hidden != "" {
		s += ", " + hidden + " (--all shows them)"
	}
	if n := p.WithFindings(); n > 0 {
		s += fmt.Sprintf(", %s with findings", humanize.Count(n))
	}
	return s
}

// NaturalWidths returns the width of each column without a limit.
func NaturalWidths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], widget.Width(cell))
		}
	}
	return widths
}

// TableRow returns the line of a row. A column of width 0 is omitted.
func TableRow(row []string, widths []int) string {
	var cells []string
	for i, cell := range row {
		if widths[i] > 0 {
			cells = append(cells, widget.Fit(cell, widths[i]))
		}
	}
	return strings.TrimRight(strings.Join(cells, "  "), " ") + "\n"
}

// Narrow returns the widths of the columns in a table of a width; 0 means no limit. It
// reduces columns, from the right, down to their least widths. If the table does not fit
// then, Narrow first omits columns, which get the width 0.
func Narrow(cols []Column, natural []int, width int) []int {
	widths := slices.Clone(natural)
	if width == 0 {
		return widths
	}
	excess, slack := -2-width, 0
	for i, w := range widths {
		excess += w + 2
		if cols[i].Least > 0 {
			slack += max(0, w-cols[i].Least)
		}
	}
	for excess > slack {
		i := nextToOmit(cols, widths)
		if i < 0 {
			break
		}
		excess -= widths[i] + 2
		if cols[i].Least > 0 {
			slack -= max(0, widths[i]-cols[i].Least)
		}
		widths[i] = 0
	}
	for i := len(cols) - 1; i >= 0; i-- {
		if cols[i].Least == 0 || excess <= 0 {
			continue
		}
		give := max(0, min(excess, widths[i]-cols[i].Least))
		widths[i] -= give
		excess -= give
	}
	return widths
}

// nextToOmit returns the next column to omit, or -1.
func nextToOmit(cols []Column, widths []int) int {
	next := -1
	for i, c := range cols {
		if c.Spare > 0 && widths[i] > 0 && (next < 0 || c.Spare > cols[next].Spare) {
			next = i
		}
	}
	return next
}

// TerminalWidth returns the width of the terminal behind w, 0 if w is not a terminal.
func TerminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(f.Fd())
	if err != nil {
		return 0
	}
	return width
}
