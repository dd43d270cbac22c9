package widget

import "slices"

// Column is one column of a table.
type Column struct {
	Title    string
	Min, Max int  // width in cells; Max 0 means Min
	Priority int  // 0 always stays; of the others, the highest is dropped first
	Right    bool // align right
	Off      bool // hidden
}

// Cell is a column's content in one row.
type Cell struct {
	Style Style
	Text  string
}

// Table is a column layout for a width. It draws the header and single rows, so that invisible
// rows cost nothing.
type Table struct {
	glyphs  Glyphs
	columns []Column
	shown   []place
	gap     int
}

// place is a visible column and its width.
type place struct{ column, width int }

// NewTable lays columns out in w cells: as many as fit by priority, in the given order, gap
// cells apart. Columns with a Max share the remaining cells.
func NewTable(g Glyphs, columns []Column, w, gap int) Table {
	t := Table{glyphs: g, columns: columns, gap: gap}
	limit := slices.MaxFunc(columns, func(a, b Column) int { return a.Priority - b.Priority }).Priority
	for limit > 0 && minimum(columns, limit, gap) > w {
		limit--
	}
	for i, c := range columns {
		if c.Priority <= limit && !c.Off {
			t.shown = append(t.shown, place{i, c.Min})
		}
	}
	spare := w - minimum(columns, limit, gap)
	t.widen(spare)
	t.narrow(-spare)
	return t
}

// minimum returns the minimum width of the columns up to priority limit.
func minimum(columns []Column, limit, gap int) int {
	w := -gap
	for _, c := range columns {
		if c.Priority <= limit && !c.Off {
			w += c.Min + gap
		}
	}
	return max(w, 0)
}

// widen distributes spare cells to the columns with a Max, in proportion to the cells that they
// lack.
func (t *Table) widen(spare int) {
	wanted := 0
	for _, p := range t.shown {
		wanted += t.wants(p)
	}
	for i := range t.shown {
		p := &t.shown[i]
		want := t.wants(*p)
		if spare <= 0 || want == 0 {
			continue
		}
		more := min(want, (spare*want+wanted-1)/wanted)
		p.width += more
		spare, wanted = spare-more, wanted-want
	}
}

func (t *Table) wants(p place) int { return max(0, t.columns[p.column].Max-p.width) }

// narrow removes missing cells from the first column, then from the next ones.
func (t *Table) narrow(missing int) {
	for i := range t.shown {
		if missing <= 0 {
			return
		}
		less := min(missing, t.shown[i].width)
		t.shown[i].width -= less
		missing -= less
	}
}

// At returns the column at cell x of the row, -1 if there is none.
func (t Table) At(x int) int {
	for _, p := range t.shown {
		if x >= 0 && x < p.width {
			return p.column
		}
		x -= p.width + t.gap
	}
	return -1
}

// Header appends the titles. The title of column sorted has style mark and carries sign. A
// sorted of -1 marks no column.
func (t Table) Header(l *Line, st, mark Style, sorted int, sign string) {
	t.Row(l, st, func(column, w int) Cell {
		c := t.columns[column]
		if column != sorted {
			return Cell{st, c.Title}
		}
		if c.Right {
			return Cell{mark, sign + c.Title}
		}
		return Cell{mark, c.Title + sign}
	})
}

// Row appends one row. It calls cell for each visible column with the column's width. The
// blanks between columns have style st.
func (t Table) Row(l *Line, st Style, cell func(column, w int) Cell) {
	for i, p := range t.shown {
		if i > 0 {
			l.Pad(st, t.gap)
		}
		c := cell(p.column, p.width)
		if t.columns[p.column].Right {
			l.Put(c.Style, t.glyphs.FitRight(c.Text, p.width))
			continue
		}
		l.Put(c.Style, t.glyphs.Fit(c.Text, p.width))
	}
}
