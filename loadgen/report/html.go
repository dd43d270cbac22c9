package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"locktop/internal/htmlpage"
	"locktop/internal/humanize"
	"locktop/loadgen"
)

// WriteHTML writes the report as a self-contained HTML page with charts.
func (r Result) WriteHTML(w io.Writer) error {
	title := name(r.Scenario)
	p := page{Page: htmlpage.New("locktop load: "+title, "")}
	p.Put(`<h1>%v</h1>`, title)
	p.Put(`<p>%v · %v · %v · seed %v</p>`, r.Lock(), load(r.Scenario), humanize.Precise(r.Metrics.Elapsed), r.Scenario.Seed)
	p.verdict(r.Verdict())
	p.scene(r)
	p.charts(r)
	p.latencies(r.Metrics)
	p.pairs("What was run", settings(r.Scenario))
	p.Put(`<div class="columns">`)
	p.pairs("What happened", rows(r.Metrics, false))
	p.pairs("What must not happen", rows(r.Metrics, true))
	p.Put(`</div>`)
	p.evidence(r)
	if err := p.Close(w); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// page is the page of a report.
type page struct {
	*htmlpage.Page
	marks []mark
}

// mark is a moment of a run that the charts show. One that did not come is in the list
// below the charts only.
type mark struct {
	at    time.Duration
	label string
	came  bool
}

// marks returns the starts of the stages and the faults.
func (r Result) marks() []mark {
	var all []mark
	at := time.Duration(0)
	for i, stage := range r.Scenario.Stages {
		label := fmt.Sprintf("stage %d at %s: %s", i+1, humanize.Setting(at), loadgen.YAML(stage))
		all = append(all, mark{at - r.Scenario.Warmup, label, true})
		at += stage.For
	}
	for _, f := range r.Metrics.Faults {
		all = append(all, mark{f.Fault.At - r.Scenario.Warmup, f.String(), f.Struck > 0})
	}
	return all
}

// whole returns the complete seconds; for a run shorter than 1 s, all.
func (r Result) whole() []loadgen.Second {
	if r.Metrics.Elapsed < time.Second {
		return r.Seconds
	}
	return r.Seconds[:min(len(r.Seconds), int(r.Metrics.Elapsed/time.Second))]
}

func (p *page) verdict(v loadgen.Verdict) {
	switch {
	case !v.Safe:
		p.Put(`<p class="verdict unsafe">▲ %v</p>`, v.Text())
	case !v.Harmless:
		p.Put(`<p class="verdict harm">● %v</p>`, v.Text())
	default:
		p.Put(`<p class="verdict">✓ %v</p>`, v.Text())
	}
	for _, gap := range v.Gaps {
		p.Put(`<p class="verdict unsafe">▲ %v</p>`, gap)
	}
	for _, missed := range v.Missed {
		p.Put(`<p class="verdict unsafe">▲ threshold missed: %v</p>`, missed)
	}
}

// scene puts what the scenario is to show, and whether it was seen.
func (p *page) scene(r Result) {
	if r.Scenario.Caption != "" {
		p.Put(`<p>%v</p>`, r.Scenario.Caption)
	}
	for _, line := range r.scene() {
		p.Put(`<p><b>%v</b> %v</p>`, line.name, line.value)
	}
}

// charts puts the charts, and the list of what is marked in them.
func (p *page) charts(r Result) {
	seconds := r.whole()
	p.marks = r.marks()
	p.chart("Acquired per second", seconds,
		func(s loadgen.Second) float64 { return float64(s.Acquired) },
		func(v float64) string { return fmt.Sprintf("%.0f/s", v) })
	p.chart("Wait p99 per second", seconds,
		func(s loadgen.Second) float64 { return s.Wait.P99.Seconds() },
		func(v float64) string { return humanize.Precise(time.Duration(v * float64(time.Second))) })
	for i, m := range p.marks {
		number := ""
		if m.came {
			number = fmt.Sprintf("%d: ", i+1)
		}
		p.Put(`<p class="legend">%v%v</p>`, number, m.label)
	}
	if r.Scenario.Warmup > 0 {
		p.Put(`<p class="legend">The charts begin after the warm-up of %v.</p>`, humanize.Setting(r.Scenario.Warmup))
	}
}

// chart puts the curve of a figure per second, in an area of 600 by 120 points.
func (p *page) chart(title string, seconds []loadgen.Second, of func(loadgen.Second) float64, label func(float64) string) {
	n, top := len(seconds), 0.0
	for _, s := range seconds {
		top = max(top, of(s))
	}
	x := func(second float64) string { return fmt.Sprintf("%.1f", 600*second/float64(max(n-1, 1))) }
	var points strings.Builder
	for i, s := range seconds {
		share := 0.0
		if top > 0 {
			share = of(s) / top
		}
		fmt.Fprintf(&points, "%s,%.1f ", x(float64(i)), 120*(1-share))
	}
	p.Put(`<h2>%v (top: %v)</h2>`, title, label(top))
	p.Put(`<svg viewBox="-6 -8 612 150" role="img" aria-label="%v"><polyline points="%v"/><path d="M0 120H600"/>`, title, points.String())
	for i := range n {
		if n <= 12 || i%((n+11)/12) == 0 {
			p.Put(`<text x="%v" y="136">%v s</text>`, x(float64(i)), i+1)
		}
	}
	for i, m := range p.marks {
		if m.came {
			at := 600 * min(1, max(0, (m.at.Seconds()-1)/float64(max(n-1, 1))))
			p.Put(`<path class="mark" d="M%v 0V120"/><text x="%v" y="4">%v</text>`, fmt.Sprintf("%.1f", at), fmt.Sprintf("%.1f", at+4), i+1)
		}
	}
	p.Put(`</svg>`)
}

func (p *page) latencies(m loadgen.Metrics) {
	p.Put(`<h2>Latencies</h2><table>`)
	for i, row := range latencies(m) {
		cell := map[bool]string{true: `<th class="n">%v</th>`, false: `<td class="n">%v</td>`}[i == 0]
		p.Put(`<tr><th>%v</th>`, row[0])
		for _, text := range row[1:] {
			p.Put(cell, text)
		}
		p.Put(`</tr>`)
	}
	p.Put(`</table>`)
}

func (p *page) pairs(title string, all []pair) {
	p.Put(`<div><h2>%v</h2><table>`, title)
	for _, one := range all {
		p.Put(`<tr><th>%v</th><td>%v</td></tr>`, one.name, one.value)
	}
	p.Put(`</table></div>`)
}

func (p *page) evidence(r Result) {
	all := r.evidence()
	if len(all) == 0 {
		return
	}
	p.Put(`<h2>Evidence</h2><ul>`)
	for _, e := range all {
		p.Put(`<li>%v</li>`, sentence(e, r.Metrics.Began, func(s string) string { return s }))
	}
	p.Put(`</ul>`)
}
