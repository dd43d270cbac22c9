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

// Column is a column of a table for people.
type Column struct {
	Title string
	Least int // least width in a narrow table; 0: never narrower
	Spare int // a table that is still too wide omits the column with the greatest number; 0: never
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

// Table prints a header and one lock per line, with lines up to width cells if
// possible; a width of 0 means no limit.
func Table(w io.Writer, p View, width int) error {
	cols := []Column{{"LOCK", 20, 0}, {"DB", 0, 0}, {"KIND", 0, 2}, {"FORMAT", 9, 1}, {"OWNER", 9, 0}, {"DEPTH", 0, 3},
		{"WAIT", 0, 0}, {"HELD", 0, 0}, {"TTL", 0, 0}, {"STATE", 0, 0}, {"FINDINGS", 8, 0}}
	rows := Each(p.Locks, func(l *keyspace.Lock) []string {
		return []string{ShortKey(l.Key), strconv.Itoa(l.DB), string(l.Kind), l.Format, owner(*l), l.DepthText(),
			waiting(*l, p.At), heldSpan(*l, p.At), Left(*l, p.At), string(l.State(p.At)), findingIDs(p.Findings[l.ID()])}
	})
	if !p.Databases {
		const db = 1
		cols, rows = slices.Delete(cols, db, db+1), Each(rows, func(row []string) []string { return slices.Delete(row, db, db+1) })
	}
	var out strings.Builder
	Rows(&out, cols, rows, width)
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

// longestPadded is the greatest width of the first column of a table without a width. Longer
// cells extend beyond the column.
const longestPadded = 40

// Rows prints a table: the titles and a line for each row, with lines up to width cells if
// possible; a width of 0 means no limit. It returns the titles of the columns that it omits.
func Rows(out *strings.Builder, cols []Column, rows [][]string, width int) (omitted []string) {
	titles := Each(cols, func(c Column) string { return c.Title })
	rows = append([][]string{titles}, rows...)
	natural := make([]int, len(cols))
	for _, row := range rows {
		for i, cell := range row {
			natural[i] = max(natural[i], widget.Width(cell))
		}
	}
	if width == 0 { // not a terminal: one long cell does not widen all rows
		natural[0] = min(natural[0], longestPadded)
	}
	widths := narrow(cols, natural, width)
	for _, row := range rows {
		if width == 0 && widget.Width(row[0]) > widths[0] {
			out.WriteString(row[0] + "  " + tableRow(row[1:], widths[1:]))
			continue
		}
		out.WriteString(tableRow(row, widths))
	}
	for i, w := range widths {
		if w == 0 {
			omitted = append(omitted, titles[i])
		}
	}
	return omitted
}

// tableRow returns the line of a row. A column of width 0 is omitted.
func tableRow(row []string, widths []int) string {
	var cells []string
	for i, cell := range row {
		if widths[i] > 0 {
			cells = append(cells, widget.Fit(cell, widths[i]))
		}
	}
	return strings.TrimRight(strings.Join(cells, "  "), " ") + "\n"
}

// narrow returns the widths of the columns in a table of a width; 0 means no limit. It
// reduces columns, from the right, down to their least widths. If the table does not fit
// then, narrow first omits columns, which get the width 0.
func narrow(cols []Column, natural []int, width int) []int {
	widths := slices.Clone(natural)
	if width == 0 {
		return widths
	}
	least := slices.Clone(natural)
	for i, c := range cols {
		if c.Least > 0 {
			least[i] = min(c.Least, natural[i])
		}
	}
	for excess(least, width) > 0 {
		i := nextToOmit(cols, widths)
		if i < 0 {
			break
		}
		widths[i], least[i] = 0, 0
	}
	for i := range slices.Backward(cols) {
		widths[i] -= max(0, min(excess(widths, width), widths[i]-least[i]))
	}
	return widths
}

// excess returns by how many cells a line of columns of these widths exceeds a width.
func excess(widths []int, width int) int {
	cells := -2 - width
	for _, w := range widths {
		if w > 0 {
			cells += w + 2
		}
	}
	return cells
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
	width, _, _ := term.GetSize(f.Fd()) // 0 with an error
	return width
}
