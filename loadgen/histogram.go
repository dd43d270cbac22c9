package loadgen

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram counts durations from 1 µs to 1 h with two significant digits. Longer ones
// count as 1 h, except in max. It takes 26 KB. It is not safe for concurrent use.
type histogram struct {
	hdr      *hdrhistogram.Histogram
	max      time.Duration
	censored int64
}

func newHistogram() *histogram {
	return &histogram{hdr: hdrhistogram.New(int64(time.Microsecond), int64(time.Hour), 2)}
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.max = max(h.max, d)
	// A value up to 1 h is never out of range.
	_ = h.hdr.RecordValue(int64(min(d, time.Hour)))
}

// addCensored adds the length of a wait that was cut off, a lower bound of the real
// one.
func (h *histogram) addCensored(d time.Duration) {
	h.add(d)
	h.censored++
}

func (h *histogram) reset() {
	h.hdr.Reset()
	h.max, h.censored = 0, 0
}

func (h *histogram) latency() Latency {
	p := h.hdr.ValueAtPercentilesSlice([]float64{50, 90, 95, 99, 99.9})
	// A percentile is the upper end of a bucket, which may be above the maximum.
	return Latency{
		Count:    h.hdr.TotalCount(),
		Censored: h.censored,
		Mean:     min(time.Duration(h.hdr.Mean()), h.max),
		P50:      min(time.Duration(p[0]), h.max),
		P90:      min(time.Duration(p[1]), h.max),
		P95:      min(time.Duration(p[2]), h.max),
		P99:      min(time.Duration(p[3]), h.max),
		P999:     min(time.Duration(p[4]), h.max),
		Max:      h.max,
	}
}

// histograms are the distributions of [Latencies].
type histograms struct{ wait, release, held, handoff, renewLate *histogram }

func newHistograms() histograms {
	return histograms{newHistogram(), newHistogram(), newHistogram(), newHistogram(), newHistogram()}
}

// all returns the histograms in the order of the fields.
func (h *histograms) all() []*histogram {
	return []*histogram{h.wait, h.release, h.held, h.handoff, h.renewLate}
}

func (h *histograms) latencies() Latencies {
	return Latencies{h.wait.latency(), h.release.latency(), h.held.latency(), h.handoff.latency(), h.renewLate.latency()}
}

// timeline holds the figures of each of the newest seconds of a run. Only the current
// second has a histogram.
type timeline struct {
	past     []Second // oldest first, at most HistorySeconds-1
	current  int      // number of the current second
	acquired int64
	wait     *histogram

	keep func(number int, of Second, waits *histogram) // nil, or called for each second that ends
}

func newTimeline() *timeline { return &timeline{wait: newHistogram()} }

// add counts an acquire at a time since the start. If its second is over, the current
// second counts it.
func (t *timeline) add(at, wait time.Duration) {
	t.advance(at)
	t.acquired++
	t.wait.add(wait)
}

// advance closes every second that ended before a time since the start.
func (t *timeline) advance(at time.Duration) {
	elapsed := int(at/time.Second) - t.current
	if elapsed <= 0 {
		return
	}
	if t.keep != nil {
		t.keep(t.current, t.now(), t.wait)
	}
	t.past = append(t.past, t.now())
	// A gap longer than the history leaves only empty seconds.
	t.past = append(t.past, make([]Second, min(elapsed, HistorySeconds)-1)...)
	t.past = t.past[max(0, len(t.past)-(HistorySeconds-1)):]
	t.current += elapsed
	t.acquired = 0
	t.wait.reset()
}

func (t *timeline) now() Second {
	return Second{Acquired: t.acquired, Wait: t.wait.latency()}
}

// seconds returns a copy of the history, with the current second last.
func (t *timeline) seconds(at time.Duration) []Second {
	t.advance(at)
	all := make([]Second, 0, len(t.past)+1)
	return append(append(all, t.past...), t.now())
}
