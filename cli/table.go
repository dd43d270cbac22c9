package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/charmbracelet/x/term"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/tui/widget"
)

// column is a column of the table for people.
type column struct {
	title string
	cell  func(view, keyspace.Lock) string
	least int // the width it keeps when the table must become narrower; 0: all of it
}

// columns are those of p: with the database of each lock if they are several.
func columns(p view) []column {
	all := []column{
		{"LOCK", func(_ view, l keyspace.Lock) string { return shortKey(l.Key) }, 20},
		{"DB", func(_ view, l keyspace.Lock) string { return strconv.Itoa(l.DB) }, 0},
		{"KIND", func(_ view, l keyspace.Lock) string { return string(l.Kind) }, 0},
		{"FORMAT", func(_ view, l keyspace.Lock) string { return l.Format }, 9},
		{"OWNER", func(_ view, l keyspace.Lock) string { return owner(l) }, 9},
		{"COUNT", func(_ view, l keyspace.Lock) string { return strconv.Itoa(l.Count()) }, 0},
		{"WAIT", func(_ view, l keyspace.Lock) string { return waiting(l) }, 0},
		{"HELD", func(p view, l keyspace.Lock) string { return heldSpan(l, p.At) }, 0},
		{"TTL", func(p view, l keyspace.Lock) string { return left(l, p.At) }, 0},
		{"STATE", func(p view, l keyspace.Lock) string { return string(l.State(p.At)) }, 0},
		{"FINDINGS", func(p view, l keyspace.Lock) string { return findingIDs(p.findings[l.ID()]) }, 0},
	}
	if !p.databases {
		all = slices.Delete(all, 1, 2)
	}
	return all
}

// showWaiters has the names of the formats that show who waits.
var showWaiters = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, f := range formats.All() {
		names[f.Name] = f.ShowsWaiters
	}
	return names
})

// waiting is the number of clients that wait, "?" where the format does not show them.
func waiting(l keyspace.Lock) string {
	if l.WaiterCount() == 0 && !showWaiters()[l.Format] {
		return "?"
	}
	return strconv.Itoa(l.WaiterCount())
}

// longestPadded is how wide the column of keys is where it need not fit anything;
// longer keys stick out.
const longestPadded = 40

// writeTable prints one lock a line under headings, no line wider than width if
// it can be helped; 0 is as wide as it takes.
func writeTable(w io.Writer, p view, width int) error {
	cols := columns(p)
	rows := [][]string{make([]string, len(cols))}
	for i, c := range cols {
		rows[0][i] = c.title
	}
	for _, l := range p.Locks {
		row := make([]string, len(cols))
		for i, c := range cols {
			row[i] = c.cell(p, l)
		}
		rows = append(rows, row)
	}

	wide := natural(rows)
	if width == 0 { // nobody looks at it: one long key does not make all rows as long
		wide[0] = min(wide[0], longestPadded)
	}
	widths := narrow(cols, wide, width)
	var out strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			if width > 0 || i > 0 || widget.Width(cell) <= widths[i] {
				row[i] = widget.Fit(cell, widths[i])
			}
		}
		out.WriteString(strings.TrimRight(strings.Join(row, "  "), " "))
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "%s\n", total(p))
	_, err := io.WriteString(w, out.String())
	return err
}

// total is the line under the table.
func total(p view) string {
	s := fmt.Sprintf("%s in %s", humanize.Plural(len(p.Locks), "lock"), humanize.Plural(p.Cost.Scanned, "key"))
	if n := p.troubled(); n > 0 {
		s += fmt.Sprintf(", %s with findings", humanize.Count(n))
	}
	return s
}

// natural is how wide each column would like to be.
func natural(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], widget.Width(cell))
		}
	}
	return widths
}

// narrow takes from the columns that can give, from the right, until the table
// fits or they have given all.
func narrow(cols []column, widths []int, width int) []int {
	excess := 2*(len(cols)-1) - width
	for _, w := range widths {
		excess += w
	}
	for i := len(cols) - 1; i >= 0 && width > 0; i-- {
		if cols[i].least == 0 || excess <= 0 {
			continue
		}
		give := max(0, min(excess, widths[i]-cols[i].least))
		widths[i] -= give
		excess -= give
	}
	return widths
}

// screenWidth is how wide the terminal behind w is, 0 if there is none.
func screenWidth(w io.Writer) int {
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
