package tui

import (
	"slices"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// While a client waits, the hold has the colour of waiting; else it is grey.
func TestAHoldHasAColourOnlyWhileAClientWaits(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	n := &lane{
		holds:   []timelineHold{{from: at(10), to: at(30)}, {from: at(40), to: at(60)}},
		waits:   []laneWait{{n: 1, from: at(5), to: at(15)}, {n: 1, from: at(20), to: at(25)}},
		waiting: map[string]time.Time{"a": at(25)},
	}
	n.leaves("a", at(45))
	theme := themeNamed("dark", renderer(termenv.TrueColor))
	view := timeWindow{at(0), at(100), 100}
	var got [][2]float64
	for _, s := range n.spans(theme, view, n.contended(view)) {
		if s.Label == "" && s.Fill == theme.warn && s.From >= 10 && s.To != 20 && s.To != 45 || s.From == 40 {
			got = append(got, [2]float64{s.From, s.To})
		}
	}
	for _, want := range [][2]float64{{10, 15}, {20, 30}, {40, 45}} {
		check.True(t, slices.Contains(got, want), "no waiting from %v to %v s: %v", want[0], want[1], got)
	}
	for _, o := range theme.owners {
		check.True(t, o.fill != theme.warn && o.fill != theme.bad && o.fill != theme.good, "an owner has a colour with a meaning: %v", o)
	}
}

// Two holders of a semaphore at once are two shared holds with a letter each, also if they begin
// in one cell, and the second does not begin when the first ends.
func TestTheHoldersOfASemaphoreHaveALetterEach(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	c := timeline{owners: make(map[string]int), lanes: make(map[keyspace.ID]*lane)}
	permits := keyspace.Lock{Key: "pool", Kind: keyspace.Semaphore, Limit: 2}
	for i, kind := range []keyspace.EventKind{keyspace.Acquired, keyspace.Acquired, keyspace.Released} {
		c.onEvent(&keyspace.Event{At: began.Add(time.Duration(i) * time.Second), Kind: kind, Lock: permits, Holder: keyspace.Holder{ID: string(rune('a' + i%2))}})
	}
	theme := themeNamed("dark", renderer(termenv.TrueColor))
	l := widget.NewLine(10)
	widget.Blocks().Strip(l, widget.Style{}, 10, c.of(permits.ID()).spans(theme, timeWindow{began.Add(-10 * time.Second), began.Add(90 * time.Second), 10}, nil))
	check.Equal(t, ansi.Strip(l.String()), " AB▒▒▒▒▒▒▒", "drawn")
}
