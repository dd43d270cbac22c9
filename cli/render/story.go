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
	Damage    error    // of the recording, whose intact part is explained
}

// StoryDocument is the output of `explain --json`.
type StoryDocument struct {
	Recording string `json:"recording"`
	Span
	Complete   bool     `json:"complete"`
	Problems   []string `json:"problems"`
	StoryCount int      `json:"story_count"`
	Stories    []Story  `json:"stories"` // the most expensive first
	Summaries  []string `json:"summaries,omitzero"`
}

// Story is the JSON form of an incident.
type Story struct {
	LockID
	Format string         `json:"format"`
	Cause  incident.Cause `json:"cause"`
	Span
	Ongoing      bool        `json:"ongoing"` // the recording ends before the incident
	Headline     string      `json:"headline"`
	Lines        []StoryLine `json:"lines"`
	ClientCount  int         `json:"client_count,omitzero"` // largest number of clients that waited
	WaitedMS     *int64      `json:"waited_ms,omitzero"`    // of all clients
	WaitedAtMost bool        `json:"waited_at_most,omitzero"`
	HoldCount    int         `json:"hold_count,omitzero"` // that ended; absent: fewer than five
	HoldP50MS    *int64      `json:"hold_p50_ms,omitzero"`
	HoldP99MS    *int64      `json:"hold_p99_ms,omitzero"`
	Limitations  []string    `json:"limitations"`
	Remedy       string      `json:"remedy"`
}

// StoryLine is the JSON form of a moment of an incident.
type StoryLine struct {
	At     string `json:"at"`
	Text   string `json:"text"`
	CostMS *int64 `json:"cost_ms,omitzero"`
	Note   string `json:"note,omitzero"`
}

// Document returns the output of `explain --json`.
func (s Stories) Document() StoryDocument {
	d := StoryDocument{
		Recording: Text(s.Recording), Span: Span{Timestamp(s.From), Timestamp(s.To)}, Complete: s.Damage == nil, Problems: []string{},
		StoryCount: s.Found, Stories: Each(s.Stories, storyOf),
	}
	if s.Damage != nil {
		d.Problems = []string{Text(s.Damage.Error())}
	}
	if len(s.Calm) > 0 {
		d.Summaries = Each(s.Calm, Text)
	}
	return d
}

func storyOf(s incident.Story) Story {
	return Story{
		LockID: LockIDOf(s.Lock), Format: s.Format, Cause: s.Cause, Span: Span{Timestamp(s.From), Timestamp(s.To)}, Ongoing: s.Ongoing,
		Headline: Text(s.Headline), ClientCount: s.Clients, WaitedMS: lasting(s.Blocked), WaitedAtMost: s.AtMost && s.Blocked > 0,
		HoldCount: s.Usual.Holds, HoldP50MS: lasting(s.Usual.P50), HoldP99MS: lasting(s.Usual.P99),
		Limitations: Each(s.Unknown, Text), Remedy: Text(s.Next),
		Lines: Each(s.Lines, func(l incident.Line) StoryLine {
			return StoryLine{Timestamp(l.At), Text(l.Text), lasting(l.Cost), Text(l.Note)}
		}),
	}
}

// heading says what the output is about.
func (s Stories) heading() string {
	when := fmt.Sprintf("from %s to %s", s.From.Local().Format("2006-01-02 15:04:05"), s.To.Local().Format("2006-01-02 15:04:05 MST"))
	if s.Damage != nil {
		when += ", as far as the recording is readable: it is " + s.Damage.Error()
	}
	switch n := len(s.Stories); {
	case n == 0:
		return "No incident " + when + "."
	case n < s.Found:
		return fmt.Sprintf("The %d worst of %d incidents %s.", n, s.Found, when)
	case n == 1:
		return "1 incident " + when + "."
	default:
		return fmt.Sprintf("%d incidents, the worst first, %s.", n, when)
	}
}

// title names an incident.
func title(s *incident.Story) string {
	db := map[bool]string{true: fmt.Sprintf(" (database %d)", s.Lock.DB)}[s.Lock.DB != 0]
	return fmt.Sprintf("%s%s, %s", s.Lock.Key, db, s.Cause)
}

// costOf describes what a moment cost.
func costOf(l incident.Line) string {
	if l.Cost < time.Second && l.Note == "" {
		return ""
	}
	return strings.TrimSuffix(humanize.Duration(l.Cost.Round(time.Second))+": "+l.Note, ": ")
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
