package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"locktop/internal/htmlpage"
	"locktop/internal/humanize"
	"locktop/keyspace/incident"
	"locktop/tui/widget"
)

// Stories is the output of explain.
type Stories struct {
	Recording string
	From, To  time.Time
	Stories   []incident.Story
	Found     int      // including those that are not in Stories
	Calm      []string // sentences about locks without an incident
}

// StoryDocument is the output of `explain --json`. Scripts depend on its names: add fields,
// but never change them.
type StoryDocument struct {
	Recording string   `json:"recording"`
	From      string   `json:"from"`
	To        string   `json:"to"`
	Found     int      `json:"found"`
	Stories   []Story  `json:"stories"` // the most expensive first
	Calm      []string `json:"calm,omitempty"`
}

// Story is the JSON form of an incident.
type Story struct {
	Key       string         `json:"key"`
	KeyB64    string         `json:"key_b64,omitempty"` // set if the key is not valid UTF-8
	DB        int            `json:"db"`
	Format    string         `json:"format"`
	Cause     incident.Cause `json:"cause"`
	From      string         `json:"from"`
	To        string         `json:"to"`
	Ongoing   bool           `json:"ongoing"` // the recording ends before the incident
	Headline  string         `json:"headline"`
	Lines     []StoryLine    `json:"lines"`
	BlockedMS int64          `json:"blocked_ms"` // time of all clients that waited
	AtMost    bool           `json:"at_most"`    // blocked_ms is an upper bound
	Clients   int            `json:"clients"`    // largest number of clients that waited
	Holds     int            `json:"usual_holds"`
	P50MS     int64          `json:"usual_p50_ms,omitempty"` // absent: fewer than five holds ended
	P99MS     int64          `json:"usual_p99_ms,omitempty"`
	Unknown   []string       `json:"not_known"`
	Next      string         `json:"next"`
}

// StoryLine is the JSON form of a moment of an incident.
type StoryLine struct {
	At     string `json:"at"`
	Text   string `json:"text"`
	CostMS int64  `json:"cost_ms,omitempty"`
	Note   string `json:"note,omitempty"`
}

// JSON writes one document. No list in it is null, except calm.
func (s Stories) JSON(w io.Writer) error {
	return JSON(w, StoryDocument{
		Recording: Text(s.Recording), From: Timestamp(s.From), To: Timestamp(s.To), Found: s.Found, Stories: Each(s.Stories, storyOf), Calm: Each(s.Calm, Text),
	})
}

func storyOf(s incident.Story) Story {
	return Story{
		Key: Text(s.Lock.Key), KeyB64: Base64(s.Lock.Key), DB: s.Lock.DB, Format: s.Format, Cause: s.Cause,
		From: Timestamp(s.From), To: Timestamp(s.To), Ongoing: s.Ongoing, Headline: Text(s.Headline),
		BlockedMS: s.Blocked.Milliseconds(), AtMost: s.AtMost, Clients: s.Clients,
		Holds: s.Usual.Holds, P50MS: s.Usual.P50.Milliseconds(), P99MS: s.Usual.P99.Milliseconds(), Unknown: Each(s.Unknown, Text), Next: Text(s.Next),
		Lines: Each(s.Lines, func(l incident.Line) StoryLine {
			return StoryLine{Timestamp(l.At), Text(l.Text), l.Cost.Milliseconds(), Text(l.Note)}
		}),
	}
}

// heading says what the output is about.
func (s Stories) heading() string {
	when := fmt.Sprintf("from %s to %s", s.From.Local().Format("2006-01-02 15:04:05"), s.To.Local().Format("2006-01-02 15:04:05 MST"))
	switch n := len(s.Stories); {
	case n == 0:
		return "No incident " + when + "."
	case n < s.Found:
		return fmt.Sprintf("The %d worst of %d incidents %s.", n, s.Found, when)
	case n == 1:
		return "1 incident " + when + "."
	default:
		return fmt.Sprintf("%d incidents %s, the worst first.", n, when)
	}
}

// title names an incident.
func title(s *incident.Story) string {
	db := ""
	if s.Lock.DB != 0 {
		db = fmt.Sprintf(" (database %d)", s.Lock.DB)
	}
	return fmt.Sprintf("%s%s, %s", s.Lock.Key, db, s.Cause)
}

// costOf describes what a moment cost.
func costOf(l incident.Line) string {
	switch {
	case l.Cost < time.Second && l.Note == "":
		return ""
	case l.Note == "":
		return humanize.Duration(l.Cost.Round(time.Second))
	default:
		return humanize.Duration(l.Cost.Round(time.Second)) + ": " + l.Note
	}
}

// notKnown is what is not known, in one sentence; "" if there is nothing.
func notKnown(s *incident.Story) string {
	if len(s.Unknown) == 0 {
		return ""
	}
	return strings.Join(s.Unknown, "; ") + "."
}

// Text writes the stories for a terminal of a width; 0 = unlimited.
func (s Stories) Text(w io.Writer, width int) error {
	var out strings.Builder
	paragraph := func(begin, text string) {
		indent := strings.Repeat(" ", len(begin))
		text = widget.Plain(text)
		if width > len(begin)+20 {
			text = ansi.Wordwrap(text, width-len(begin)-1, "")
		}
		out.WriteString(begin + strings.ReplaceAll(text, "\n", "\n"+indent) + "\n")
	}
	paragraph("", s.heading())
	for i := range s.Stories {
		one := &s.Stories[i]
		out.WriteString("\n")
		paragraph("", title(one))
		paragraph("", one.Headline)
		for _, l := range one.Lines {
			paragraph("  "+l.At.Local().Format(time.TimeOnly)+"  ", l.Text)
			if cost := costOf(l); cost != "" {
				paragraph(strings.Repeat(" ", 12)+"lost: ", cost)
			}
		}
		if text := notKnown(one); text != "" {
			paragraph("Not known: ", text)
		}
		paragraph("Next: ", one.Next)
	}
	for _, text := range s.Calm {
		paragraph("", text)
	}
	return Written(w, out.String())
}

// Markdown writes the stories to paste into a post-mortem.
func (s Stories) Markdown(w io.Writer) error {
	var out strings.Builder
	text := func(s string) string {
		return strings.NewReplacer(`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;", "[", `\[`).Replace(widget.Plain(s))
	}
	fmt.Fprintf(&out, "%s\n", text(s.heading()))
	for i := range s.Stories {
		one := &s.Stories[i]
		fmt.Fprintf(&out, "\n## %s\n\n%s\n\n| time | what | cost |\n| --- | --- | --- |\n", text(title(one)), text(one.Headline))
		for _, l := range one.Lines {
			fmt.Fprintf(&out, "| %s | %s | %s |\n", l.At.Local().Format(time.TimeOnly), text(l.Text), text(costOf(l)))
		}
		if unknown := notKnown(one); unknown != "" {
			fmt.Fprintf(&out, "\n**Not known:** %s\n", text(unknown))
		}
		fmt.Fprintf(&out, "\n**Next:** %s\n", text(one.Next))
	}
	for _, calm := range s.Calm {
		fmt.Fprintf(&out, "\n%s\n", text(calm))
	}
	return Written(w, out.String())
}

// HTML writes the stories as one page.
func (s Stories) HTML(w io.Writer) error {
	p := htmlpage.New("locktop explain", "")
	p.Put(`<h1>locktop explain</h1><p>%v</p>`, s.heading())
	for i := range s.Stories {
		one := &s.Stories[i]
		class := "verdict unsafe"
		if one.Cause == incident.Contended {
			class = "verdict harm"
		}
		p.Put(`<h2>%v</h2><p class="%v">%v</p><table><tr><th>time</th><th>what</th><th>cost</th></tr>`, title(one), class, one.Headline)
		for _, l := range one.Lines {
			p.Put(`<tr><td>%v</td><td>%v</td><td>%v</td></tr>`, l.At.Local().Format(time.TimeOnly), l.Text, costOf(l))
		}
		p.Put(`</table>`)
		if unknown := notKnown(one); unknown != "" {
			p.Put(`<p><b>Not known:</b> %v</p>`, unknown)
		}
		p.Put(`<p><b>Next:</b> %v</p>`, one.Next)
	}
	for _, text := range s.Calm {
		p.Put(`<p>%v</p>`, text)
	}
	return p.Close(w)
}
