package loadgen

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram counts durations from a microsecond to an hour, two digits each;
// longer ones count as an hour, except in the maximum. It takes 26 KB, and
// locks nothing.
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
	// Between 0 and an hour nothing is out of its range.
	_ = h.hdr.RecordValue(int64(min(d, time.Hour)))
}

// addCensored counts a duration that was cut off: it would have been longer.
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
	// A percentile is the upper end of its bucket, which may lie above every value.
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
