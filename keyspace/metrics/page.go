package metrics

import (
	"bufio"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ContentType is the media type of what Write writes: the text format of Prometheus.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Types of metrics.
const (
	counter       = "counter"
	gauge         = "gauge"
	histogramType = "histogram"
)

// page writes metrics in the text format. out keeps the first error of the output for its Flush.
type page struct {
	out    *bufio.Writer
	family string // name of the metric that was begun last
	target string // of the samples; "" = none
}

// begin begins a metric: the samples that follow belong to it. Each name may begin only once.
func (p *page) begin(name, kind, help string) {
	p.family = name
	p.put("# HELP ", name, " ", helpEscapes.Replace(help), "\n# TYPE ", name, " ", kind, "\n")
}

// number writes a sample with labels: pairs of a valid name and any value.
func (p *page) number(n float64, pairs ...string) { p.sample("", n, pairs) }

// known writes a number if it is known.
func (p *page) known(is bool, n int, pairs ...string) {
	if is {
		p.number(float64(n), pairs...)
	}
}

// flag writes 1 for true, and 0 for false.
func (p *page) flag(is bool, pairs ...string) {
	p.number(map[bool]float64{true: 1}[is], pairs...)
}

// time writes a time in seconds since 1970, unless it is unknown.
func (p *page) time(at time.Time, pairs ...string) {
	if !at.IsZero() {
		p.number(float64(at.UnixMilli())/1000, pairs...)
	}
}

// distribution writes the samples of a histogram with the bounds of holds.
func (p *page) distribution(h *histogram, pairs []string) {
	with := append(slices.Clip(pairs), "le", "")
	for i, bound := range holdBounds() {
		with[len(with)-1] = number(bound)
		p.sample("_bucket", float64(h.counts[i]), with)
	}
	with[len(with)-1] = "+Inf"
	p.sample("_bucket", float64(h.total), with)
	p.sample("_sum", h.sum.Seconds(), pairs)
	p.sample("_count", float64(h.total), pairs)
}

// sample writes a line: the name of the metric with a suffix, the labels, the value.
func (p *page) sample(suffix string, n float64, pairs []string) {
	p.put(p.family, suffix)
	between := "{"
	label := func(name, value string) {
		p.put(between, name, `="`, valueEscapes.Replace(strings.ToValidUTF8(value, "\uFFFD")), `"`)
		between = ","
	}
	if p.target != "" {
		label("target", p.target)
	}
	for pair := range slices.Chunk(pairs, 2) {
		label(pair[0], pair[1])
	}
	if between == "," {
		p.put("}")
	}
	p.put(" ", number(n), "\n")
}

// put writes texts. The error of a bufio.Writer stays until flush.
func (p *page) put(texts ...string) {
	for _, text := range texts {
		_, _ = p.out.WriteString(text)
	}
}

// The format has no other escapes; for any other, Prometheus rejects the whole page.
var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
)

// number returns a number as Prometheus reads it.
func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.FormatInt(int64(v), 10)
	default:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
}
