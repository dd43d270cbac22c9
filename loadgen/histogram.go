package loadgen

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram counts durations from a microsecond to an hour, two digits each;
// longer ones count as an hour, except in the maximum. It takes 26 KB, and
// locks nothing.
type histogram struct {
	hdr *hdrhistogram.Histogram
	max time.Duration
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

func (h *histogram) reset() {
	h.hdr.Reset()
	h.max = 0
}

func (h *histogram) latency() Latency {
	p := h.hdr.ValueAtPercentilesSlice([]float64{50, 90, 99})
	// A percentile is the upper end of its bucket, which may lie above every value.
	return Latency{
		Count: h.hdr.TotalCount(),
		Mean:  min(time.Duration(h.hdr.Mean()), h.max),
		P50:   min(time.Duration(p[0]), h.max),
		P90:   min(time.Duration(p[1]), h.max),
		P99:   min(time.Duration(p[2]), h.max),
		Max:   h.max,
	}
}
