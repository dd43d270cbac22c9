package clienttest

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"locktop/internal/htmlpage"
)

//go:embed card.css
var cardStyle string

// WriteHTML writes the card as a self-contained HTML page: the table, then all that was
// observed of each client, with a drawing of each failure.
func (c Card) WriteHTML(w io.Writer) error {
	p := htmlpage.New("locktop: certification of a lock client", cardStyle)
	p.Put(`<h1>locktop: certification of a lock client</h1>`)
	p.Put(`<p>%v · %v · %v · seed %v</p>`, c.Date.UTC().Format("2006-01-02 15:04 UTC"), strings.TrimSpace("locktop "+c.Locktop), c.Server, c.Seed)
	c.table(p)
	legend(p)
	for i, client := range c.Clients {
		c.section(p, i, client)
	}
	if err := p.Close(w); err != nil {
		return fmt.Errorf("write the card: %w", err)
	}
	return nil
}

// marks are the outcomes in a cell. Their colours are in addition.
var marks = map[Outcome]string{Pass: "✓", Fail: "✗ fail", Observed: "●", Unsupported: "–", Inconclusive: "?"}

// table puts a row for each test and a column for each client.
func (c Card) table(p *htmlpage.Page) {
	p.Put(`<div class="wide"><table class="card"><thead><tr><th></th>`)
	for i, client := range c.Clients {
		p.Put(`<th><a href="#%v">%v</a></th>`, anchor(i, ""), client.Client.Name)
	}
	p.Put(`</tr></thead><tbody>`)
	for _, t := range c.Tests {
		p.Put(`<tr><th title="%v">%v</th>`, t.About, t.Title)
		for i, client := range c.Clients {
			v, found := client.Verdict(t.Name)
			switch {
			case !found:
				p.Put(`<td></td>`)
			case v.drawn():
				p.Put(`<td class="%v"><a href="#%v">%v</a></td>`, v.Outcome, anchor(i, t.Name), marks[v.Outcome])
			default:
				p.Put(`<td class="%v" title="%v">%v</td>`, v.Outcome, v.Evidence, marks[v.Outcome])
			}
		}
		p.Put(`</tr>`)
	}
	p.Put(`</tbody></table></div>`)
}

// drawn reports whether the page shows the timeline of a verdict.
func (v Verdict) drawn() bool { return v.Outcome == Fail || v.Outcome == Observed }

// legend explains the marks and the drawings.
func legend(p *htmlpage.Page) {
	p.Put(`<p class="legend">✓ the test observed no failure. ✗ it observed one: the link leads to the evidence. ● it observed a fact, ` +
		`which counts neither way. – the client, or the machine, lacks what the test needs. ? the test did not come to its end. ` +
		`A pass does not prove that a lock is correct.</p>`)
	p.Put(`<p class="legend">In the drawings the time goes from left to right:`)
	for _, k := range []struct {
		kind SpanKind
		text string
	}{
		{Waiting, "a client asks for the lock"},
		{Holding, "it is inside, within its lease"},
		{Late, "it works after the end of its lease"},
		{Request, "another request"},
		{Told, "the client tells of a loss, or another moment"},
		{Faulty, "a fault"},
		{Violated, "the failure"},
	} {
		p.Put(`<span class="key"><svg class="timeline" viewBox="0 0 22 14" width="22" height="14">`)
		shape(p, k.kind, 2, 4, 18, 9)
		p.Put(`</svg> %v</span>`, k.text)
	}
	p.Put(`</p>`)
}

// section puts all that was observed of a client, the failures first.
func (c Card) section(p *htmlpage.Page, i int, r Result) {
	p.Put(`<h2 id="%v">%v</h2><p><code>%v</code></p>`, anchor(i, ""), r.Client.Name, r.Client.Command)
	if r.Client.Error != "" {
		p.Put(`<p class="verdict unsafe">▲ %v</p>`, r.Client.Error)
		return
	}
	p.Put(`<p>hello: kinds %v; renews %v; fences %v; tells %v. It extends when asked: %v.</p>`, strings.Join(r.Client.Hello.Kinds, ", "),
		YesNo(r.Client.Hello.Renews), YesNo(r.Client.Hello.Fences), YesNo(r.Client.Hello.Tells), YesNo(r.Client.Extends))
	for _, t := range c.Tests {
		if v, found := r.Verdict(t.Name); found && v.drawn() {
			p.Put(`<section id="%v"><h3><span class="%v">%v</span> %v</h3><p>%v</p>`, anchor(i, t.Name), v.Outcome, marks[v.Outcome], t.Title, v.Evidence)
			draw(p, r.Client.Name+": "+t.Title, v.Timeline)
			p.Put(`</section>`)
		}
	}
	p.Put(`<table class="facts">`)
	for _, t := range c.Tests {
		if v, found := r.Verdict(t.Name); found && !v.drawn() {
			p.Put(`<tr><td class="%v">%v</td><th>%v</th><td>%v</td></tr>`, v.Outcome, marks[v.Outcome], t.Title, v.Evidence)
		}
	}
	p.Put(`</table>`)
}

// anchor returns the id of a client's section, or of a test in it.
func anchor(client int, test string) string {
	return strings.TrimSuffix(fmt.Sprintf("c%d-%s", client+1, test), "-")
}
