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

// Histograms are copies of the distributions behind the latencies of [Metrics], in
// nanoseconds.
type Histograms struct {
	Wait, Release, Held, Handoff, RenewLate *hdrhistogram.Histogram
}

// Histograms returns the current distributions, nil before the first start.
func (r *Run) Histograms() *Histograms {
	r.mu.Lock()
	f := r.fleet
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	rec := f.recorder
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return &Histograms{rec.wait.copy(), rec.service.copy(), rec.held.copy(), rec.handoff.copy(), rec.renewLate.copy()}
}

func (h *histogram) copy() *hdrhistogram.Histogram { return hdrhistogram.Import(h.hdr.Export()) }
