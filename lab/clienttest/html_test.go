package clienttest

import (
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/internal/htmlpage"
	"locktop/loadgen/external"
)

func ms(n int) Milliseconds { return Milliseconds(n) * Milliseconds(time.Millisecond) }

// example is a card with every outcome and every kind of span.
func example() Card {
	return Card{
		Version: CardVersion, Date: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Locktop: "v1.2", Server: "redis 7.0.15", Seed: 7,
		Tests: []Test{
			{Name: "one", Title: "one holder at a time", About: "Eight clients contend."}, {Name: "freeze", Title: "a holder is frozen"},
			{Name: "behind", Title: "a replica is behind"}, {Name: "nodes", Title: "two nodes are down"}, {Name: "slow", Title: "a slow one"},
		},
		Clients: []Result{
			{
				Client: Client{Name: "lib 1.0", Command: "./lib", Hello: external.Hello{Kinds: []string{"mutex", "rw"}, Renews: true}, Extends: true},
				Verdicts: []Verdict{
					{Test: "one", Outcome: Pass, Evidence: "1,204 holds, at most one client was inside."},
					{Test: "freeze", Outcome: Fail, Overlap: true, Evidence: "client-3 got the lock while client-2 was inside.", Timeline: []Span{
						{"client-1", ms(0), ms(3), Waiting, "lock"},
						{"client-1", ms(3), ms(1000), Holding, "fence 3"},
						{"client-1", ms(500), ms(2500), Faulty, "frozen"},
						{"client-2", ms(600), ms(1010), Waiting, "lock"},
						{"client-1", ms(1000), ms(2510), Late, ""},
						{"server", ms(1000), ms(1000), Note, "the key expired"},
						{"client-2", ms(1010), ms(2820), Holding, ""},
						{"client-1", ms(2510), ms(2513), Request, "unlock: ok"},
						{"client-3", ms(2520), ms(2820), Holding, ""},
						{"", ms(2520), ms(2820), Violated, "client-2 and client-3 inside"},
						{"client-2", ms(2820), ms(2820), Told, "lost"},
					}},
					{Test: "behind", Outcome: Observed, Evidence: "client-2 got the lock.", Timeline: []Span{{"client-1", 0, ms(40), Holding, ""}}},
					{Test: "nodes", Outcome: Unsupported, Evidence: "hello names no redlock"},
					{Test: "slow", Outcome: Inconclusive, Evidence: "the machine was too slow"},
				},
			},
			{Client: Client{Name: "./other", Command: "./other", Error: "client ./other: it exited"}, Verdicts: []Verdict{{Test: "one", Outcome: Inconclusive}}},
		},
	}
}

func written(t *testing.T, c Card) string {
	t.Helper()
	var page strings.Builder
	check.NoError(t, c.WriteHTML(&page))
	golden.WellFormed(t, page.String())
	return page.String()
}

func TestThePageOfACard(t *testing.T) {
	page := written(t, example())
	golden.Check(t, "card.html", strings.Replace(page, htmlpage.Style+cardStyle, "(style)\n", 1))
}

// Every link of the page leads to a part of it, and the page needs no other file.
func TestThePageOfACardIsComplete(t *testing.T) {
	page := written(t, example())
	links := regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1)
	check.True(t, len(links) == 4, "links: %q", links) // two clients, a failure and an observation
	for _, link := range links {
		id, ok := strings.CutPrefix(link[1], "#")
		check.True(t, ok && strings.Count(page, `id="`+id+`"`) == 1, "%s leads nowhere", link[1])
	}
	for _, outside := range []string{"://", "src=", "url(", "@import", "<script", "<link"} {
		check.False(t, strings.Contains(page, outside), "the page contains %s", outside)
	}
}

// All text of a client is text on the page.
func TestThePageOfACardShowsTheTextOfAClientAsText(t *testing.T) {
	const hostile = `"><script>alert('1 & 2')</script><svg onload='x'>%s%!d`
	const control = "\x00\x1b[31m\u202e"
	c := Card{Tests: []Test{{Name: "one", Title: "one"}}, Locktop: hostile + control, Server: hostile, Clients: []Result{
		{
			Client: Client{Name: hostile, Command: hostile, Hello: external.Hello{Kinds: []string{hostile}}},
			Verdicts: []Verdict{{Test: "one", Outcome: Fail, Evidence: hostile, Timeline: []Span{
				{hostile, 0, ms(10), Holding, hostile}, {"", ms(5), ms(10), Violated, hostile},
			}}},
		},
		{Client: Client{Name: hostile, Error: hostile}, Verdicts: []Verdict{{Test: "one", Outcome: Inconclusive, Evidence: hostile + control}}},
	}}
	page := written(t, c)
	check.True(t, !strings.Contains(page, "<script") && !strings.Contains(page, "onload='"), "text is code:\n%s", page)
	check.False(t, strings.ContainsAny(page, "\x00\x1b\u202e"), "the page has characters that cannot be seen: %q", page)
	shown := 0
	for d := xml.NewDecoder(strings.NewReader(page)); ; {
		token, err := d.Token()
		if err != nil {
			break
		}
		switch token := token.(type) {
		case xml.CharData:
			shown += strings.Count(string(token), hostile)
		case xml.StartElement:
			check.True(t, token.Name.Local != "script", "the page has a script")
		}
	}
	// The versions, a column and a heading for each client, its command, kind and error, the
	// evidence, the span in words, and two labels.
	check.Equal(t, shown, 2+4+2+1+1+3, "how often the text appears in\n%s", page)
}

// In every drawing all labels can be read: they overlap neither each other nor an edge.
// Everything lies within the drawing, and a moment is visible.
func TestNothingInADrawingIsHidden(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var all []Span
		shown := 0
		for range 1 + random.IntN(30) {
			from := ms(random.IntN(3000))
			s := Span{fmt.Sprintf("client-%d", random.IntN(5)), from, from + ms(random.IntN(800)*random.IntN(2)), drawOrder[random.IntN(len(drawOrder))], strings.Repeat("x", []int{0, random.IntN(60), random.IntN(300)}[random.IntN(3)])}
			if s.text() != "" {
				shown++
			}
			all = append(all, s)
		}
		d := layOut(all)
		for i, r := range d.rows {
			check.Require(t, r.top+r.height <= d.height && (i <= 0 || r.top >= d.rows[i-1].top+d.rows[i-1].height),
				"row %d of %+v is outside of its place", i, d)
			for j, l := range r.labels {
				width := charWidth * float64(utf8.RuneCountInString(l.text))
				check.Require(t, l.x >= namesWidth && l.x+width <= drawnWidth && float64(l.line+1)*textHeight+barHeight <= r.height,
					"label %+v of row %+v is outside of it", l, r)
				for _, other := range r.labels[:j] {
					check.Require(t, other.line != l.line || l.x >= other.x+charWidth*float64(utf8.RuneCountInString(other.text)) || other.x >= l.x+width,
						"%+v and %+v overlap", other, l)
				}
				shown--
			}
			for _, s := range r.spans {
				if x := d.x(time.Duration(s.From)); x < namesWidth || d.width(s) < markWidth || x+d.width(s) > drawnWidth {
					t.Fatalf("%+v is at %.1f, %.1f wide", s, x, d.width(s))
				}
			}
		}
		check.Require(t, shown == 0, "%d labels are not shown of %+v", shown, all)
	}
}

// The axis has two to ten times, which are round.
func TestTheAxisOfADrawing(t *testing.T) {
	for took, want := range map[time.Duration]string{
		3200 * time.Millisecond: "[0s 500ms 1s 1.5s 2s 2.5s 3s]",
		90 * time.Millisecond:   "[0s 10ms 20ms 30ms 40ms 50ms 60ms 70ms 80ms 90ms]",
		12 * time.Second:        "[0s 2s 4s 6s 8s 10s 12s]",
		700 * time.Microsecond:  "[0s 100µs 200µs 300µs 400µs 500µs 600µs 700µs]",
		0:                       "[0s 1µs]",
	} {
		check.Equal(t, fmt.Sprint(layOut([]Span{{"client-1", 0, Milliseconds(took), Holding, ""}}).ticks()), want, "%s", took)
	}
}
