// Package promtext writes metrics in the Prometheus text format, version 0.0.4.
package promtext

import (
	"bufio"
	"io"
	"math"
	"strconv"
	"strings"
)

// ContentType is the media type of the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Kind is the type of a metric.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Label is a label of a sample. The name must be a valid name of a label; the value may
// be any text.
type Label struct{ Name, Value string }

// Writer writes metrics. The first error of the output is returned by Flush. It is not
// safe for concurrent use.
type Writer struct {
	out    *bufio.Writer
	family string
}

// NewWriter returns a Writer. The caller must call Flush at the end.
func NewWriter(to io.Writer) *Writer { return &Writer{out: bufio.NewWriter(to)} }

// Flush writes what is buffered and returns the first error.
func (w *Writer) Flush() error { return w.out.Flush() }

// Family begins a metric: the samples that follow belong to it. Each name may begin only
// once.
func (w *Writer) Family(name string, kind Kind, help string) {
	w.family = name
	w.put("# HELP ", name, " ", helpEscapes.Replace(help), "\n# TYPE ", name, " ", string(kind), "\n")
}

// Sample writes a sample of the current metric.
func (w *Writer) Sample(value float64, labels ...Label) { w.sample("", value, labels) }

// Distribution writes the samples of a histogram: counts has the number of values that
// are not above each bound, total the number of all values.
func (w *Writer) Distribution(bounds []float64, counts []int64, sum float64, total int64, labels ...Label) {
	with := append(labels[:len(labels):len(labels)], Label{"le", ""})
	for i, bound := range bounds {
		with[len(labels)].Value = number(bound)
		w.sample("_bucket", float64(counts[i]), with)
	}
	with[len(labels)].Value = "+Inf"
	w.sample("_bucket", float64(total), with)
	w.sample("_sum", sum, labels)
	w.sample("_count", float64(total), labels)
}

// sample writes a line: the name of the family with a suffix, the labels, the value.
func (w *Writer) sample(suffix string, value float64, labels []Label) {
	w.put(w.family, suffix)
	between := "{"
	for _, l := range labels {
		w.put(between, l.Name, `="`, valueEscapes.Replace(strings.ToValidUTF8(l.Value, "\uFFFD")), `"`)
		between = ","
	}
	if len(labels) > 0 {
		w.put("}")
	}
	w.put(" ", number(value), "\n")
}

// put writes texts. The error of a bufio.Writer stays until Flush.
func (w *Writer) put(texts ...string) {
	for _, text := range texts {
		_, _ = w.out.WriteString(text)
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
