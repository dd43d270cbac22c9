package widget

import (
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

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
	check.DeepEqual(t, JoinHorizontal([]string{"ab"}, 2, []string{"xyz", "123"}, 3), []string{"ab  xyz", "    123"})
	check.Equal(t, JoinHorizontal([]string{"ab", "cd"}, 2, nil, 3)[1], "cd     ")
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

func TestAColumnThatIsOffLeavesItsRoomToOthers(t *testing.T) {
	columns := []Column{{Title: "LOCK", Min: 4, Max: 40}, {Title: "BAR", Min: 10, Off: true}, {Title: "TTL", Min: 5}}
	table := NewTable(Blocks(), columns, 30, 2)
	want := []place{{0, 30 - 2 - 5}, {2, 5}}
	check.True(t, slices.Equal(table.shown, want), "the columns are %+v, want %+v", table.shown, want)
}

func TestFitShortensInTheMiddle(t *testing.T) {
	for _, c := range []struct {
		s    string
		w    int
		want string
	}{
		{"lock:orders:4711", 16, "lock:orders:4711"},
		{"lock:orders:4711", 18, "lock:orders:4711  "},
		{"lock:orders:4711", 11, "lock:…:4711"},
		{"lock:orders:4711", 10, "lock:…4711"},
		{"lock:orders:4711", 2, "l…"},
		{"lock:orders:4711", 1, "…"},
		{"lock:orders:4711", 0, ""},
		{"lock:orders:4711", -3, ""},
		{"", 3, "   "},
		{"東京大阪名古屋", 7, "東…屋  "},
		{"東京大阪名古屋", 9, "東京…古屋"},
		{"鎖", 1, "…"},
	} {
		check.Equal(t, Fit(c.s, c.w), c.want, "Fit(%q, %d)", c.s, c.w)
	}
}

func TestFitEndAndFitRightKeepTheBeginning(t *testing.T) {
	for got, want := range map[string]string{
		Blocks().FitEnd("never expires", 7): "never …", ASCII().FitEnd("never expires", 7): "never ~", Blocks().FitRight("13.5 s", 8): "  13.5 s",
	} {
		check.True(t, got == want, "got %q, want %q", got, want)
	}
}

func TestASimpleCharacterIsOneCellWide(t *testing.T) {
	var all []rune
	for r := rune(' '); r <= utf8.MaxRune; r++ {
		if r != 0x7f && simple(r) {
			all = append(all, r)
		}
	}
	for _, r := range all {
		if n := ansi.StringWidth(string(r)); n != 1 {
			t.Errorf("%q is %d cells wide", r, n)
		}
	}
	check.Equal(t, ansi.StringWidth(string(all)+string(all)), 2*len(all), "cells of all characters")
}

func TestWidthIsThatOfTheTerminal(t *testing.T) {
	for _, s := range []string{"東京 – a", "e\u0301·e", "·\u0301…", "a東b京c", "👩\u200d👧 ×2", "\u0600a", "→\ufe0f", "🇩🇪·🇩🇪", "각-각"} {
		got, want := Width(s), ansi.StringWidth(s)
		check.True(t, got == want, "Width(%q) = %d, want %d", s, got, want)
	}
}

func FuzzFit(f *testing.F) {
	f.Add("lock:orders:4711", 9)
	f.Add("東京大阪", 5)
	f.Add("a東b京c", 4)
	f.Fuzz(func(t *testing.T, s string, w int) {
		if w > 1000 {
			return
		}
		s = Plain(s)
		for name, fit := range map[string]func(string, int) string{
			"Fit": Fit, "FitEnd": Blocks().FitEnd, "FitRight": ASCII().FitRight,
		} {
			got := fit(s, w)
			n := ansi.StringWidth(got)
			check.Require(t, n == max(w, 0), "%s(%q, %d) = %q: %d cells", name, s, w, got, n)
		}
	})
}

func TestChunkLosesNothing(t *testing.T) {
	for _, s := range []string{"", "a", "redis-cli EVAL 'return 1' 1 lock:orders", "東京大阪a京", strings.Repeat("x東", 40)} {
		for w := 2; w < 12; w++ {
			pieces := Chunk(s, w)
			check.Equal(t, strings.Join(pieces, ""), s, "Break(%q, %d) loses something", s, w)
			for _, p := range pieces[:len(pieces)-1] {
				n := ansi.StringWidth(p)
				check.True(t, n <= w && n >= w-1 && p != "", "Break(%q, %d) has a piece of %d cells: %q", s, w, n, p)
			}
		}
	}
}

func TestWrapBreaksBetweenWordsAndShortensTheLastLine(t *testing.T) {
	for _, c := range []struct {
		text string
		w, n int
		want []string
	}{
		{"a lock that never expires", 11, 3, []string{"a lock that", "never", "expires    "}},
		{"a lock that never expires", 11, 2, []string{"a lock that", "never expi…"}},
		{"一 二 三", 5, 2, []string{"一 二", "三   "}},
		{"short", 9, 2, []string{"short"}},
		{"", 9, 2, nil},
		{"text", 9, 0, nil},
	} {
		got := Blocks().Wrap(c.text, c.w, c.n)
		check.True(t, slices.Equal(got, c.want), "Wrap(%q, %d, %d) = %q, want %q", c.text, c.w, c.n, got, c.want)
	}
}
