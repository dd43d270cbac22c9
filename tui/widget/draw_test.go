package widget

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"

	"locktop/internal/check"
)

// terminal returns a renderer for a terminal with all colours.
func terminal() *lipgloss.Renderer {
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(termenv.TrueColor)
	return r
}

func TestLineIsExactlyAsWideAsAsked(t *testing.T) {
	red := StyleOf(terminal().NewStyle().Foreground(lipgloss.Color("1")))
	for w := range 12 {
		l := NewLine(w).Put(red, "abc").Put(Style{}, "東京").Pad(red, 2).Put(red, "z")
		check.Equal(t, ansi.StringWidth(l.String()), w, "cells wide")
	}
}

func TestLineSwitchesStyleOnlyWhereItChanges(t *testing.T) {
	red := StyleOf(terminal().NewStyle().Foreground(lipgloss.Color("1")))
	got := NewLine(6).Put(red, "a").Put(red, "b").Put(Style{}, "c").String()
	check.True(t, got == "\x1b[31mab\x1b[mc   ", "got %q, want ab in red and c without a style", got)
	got = NewLine(1).Put(red, "a").String()
	check.True(t, strings.HasSuffix(got, ansi.ResetStyle), "%q leaves its style on", got)
}

func TestJoinHorizontalFillsTheShorterBlock(t *testing.T) {
	check.DeepEqual(t, JoinHorizontal([]string{"ab"}, 2, []string{"xyz", "123"}, 3), []string{"abxyz", "  123"})
	check.Equal(t, JoinHorizontal([]string{"ab", "cd"}, 2, nil, 3)[1], "cd   ")
}

func TestBarGrowsByEighths(t *testing.T) {
	for fraction, want := range map[float64]string{
		0: "", -1: "", 0.001: "▏", 0.125: "▌", 0.5: "██", 0.53125: "██▏", 1: "████", 7: "████",
	} {
		check.Equal(t, Blocks().Bar(fraction, 4), want, "Bar(%v)", fraction)
	}
}

func TestScrollbarReachesBothEnds(t *testing.T) {
	for _, c := range []struct{ top, n, total, first, end int }{
		{0, 10, 10, 0, 0}, {0, 10, 20, 0, 5}, {10, 10, 20, 5, 10}, {0, 10, 10_000, 0, 1}, {9990, 10, 10_000, 9, 10}, {0, 0, 5, 0, 0},
	} {
		first, end := Scrollbar(c.top, c.n, c.total)
		check.Equal(t, [2]int{first, end}, [2]int{c.first, c.end}, "Scrollbar(%d, %d, %d)", c.top, c.n, c.total)
	}
}

func TestChartKeepsTheNewestAtTheRight(t *testing.T) {
	check.Equal(t, strings.Join(Blocks().Chart([]float64{99, 0, 4, 8, 2}, 8, 4, 2), "|"), "  █ | ██▄")
	check.DeepEqual(t, Blocks().Chart([]float64{1}, 8, 3, 1), []string{"  ▁"})
}

func TestRoundUpFindsNumbersForAxes(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 1: 1, 3: 3, 7: 8, 21: 30, 850: 1000, 1204: 2000} {
		check.Equal(t, RoundUp(v), want, "RoundUp(%v)", v)
	}
}

func TestColumnsGoByPriority(t *testing.T) {
	columns := []Column{{Title: "KEY", Min: 8, Max: 20}, {Title: "KIND", Min: 6, Priority: 2}, {Title: "TTL", Min: 6, Priority: 1, Right: true}}
	for w, want := range map[int]string{
		2:  "K~",
		8:  "KEY     ",
		15: "KEY         TTL", // KEY gets the space that KIND does not use
		24: "KEY        KIND      TTL",
	} {
		l := NewLine(w)
		NewTable(ASCII(), columns, w, 1).Header(l, Style{}, Style{}, -1, "")
		check.Equal(t, l.String(), want, "at %d cells", w)
	}
	wide := NewTable(ASCII(), columns, 60, 1)
	check.True(t, wide.shown[0] == (place{0, 20}), "KEY is %+v, want its Max, 20", wide.shown[0])
}

func TestTableNeverOverflowsItsWidth(t *testing.T) {
	columns := []Column{{Min: 8, Max: 20}, {Min: 6, Priority: 2}, {Min: 3, Max: 9, Priority: 1}, {Min: 5}}
	for w := range 80 {
		table := NewTable(Blocks(), columns, w, 2)
		sum := -2
		for _, p := range table.shown {
			sum += p.width + 2
		}
		check.True(t, sum <= w || w <= 2, "%d cells of columns in %d", sum, w)
	}
}

func BenchmarkRow(b *testing.B) {
	columns := []Column{{Min: 8, Max: 40}, {Min: 6}, {Min: 6, Right: true}, {Min: 6}}
	table := NewTable(Blocks(), columns, 100, 1)
	red := StyleOf(terminal().NewStyle().Foreground(lipgloss.Color("1")))
	for b.Loop() {
		l := NewLine(100)
		table.Row(l, Style{}, func(c, w int) Cell { return Cell{red, "lock:orders:4711"} })
		_ = l.String()
	}
}

func TestAColumnThatIsOffLeavesItsRoomToOthers(t *testing.T) {
	columns := []Column{{Title: "LOCK", Min: 4, Max: 40}, {Title: "BAR", Min: 10, Off: true}, {Title: "TTL", Min: 5}}
	table := NewTable(Blocks(), columns, 30, 2)
	want := []place{{0, 30 - 2 - 5}, {2, 5}}
	check.True(t, slices.Equal(table.shown, want), "the columns are %+v, want %+v", table.shown, want)
}
