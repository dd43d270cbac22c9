package keyspace

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets of doubling width: below 1 ms, below 2 ms,
// below 4 ms, … and a last one without an upper bound. It is a value of a few hundred
// bytes, because each lock has one; a histogram with more precision would take a
// thousand times as much.
type Histogram struct {
	Buckets [24]uint32 // the last one begins at more than an hour
	Total   uint64
	Longest time.Duration
}

// Add counts one duration; a negative one counts as zero.
func (h *Histogram) Add(d time.Duration) {
	h.Buckets[bucketOf(d)]++
	h.Total++
	h.Longest = max(h.Longest, d)
}

// bucketOf returns the index of the bucket of a duration.
func bucketOf(d time.Duration) int {
	ms := max(0, d.Milliseconds())
	return min(bits.Len64(uint64(ms)), len(Histogram{}.Buckets)-1)
}

// BucketUpperBound returns the exclusive upper bound of a bucket; 0 for the last
// bucket, which has none.
func BucketUpperBound(bucket int) time.Duration {
	if bucket >= len(Histogram{}.Buckets)-1 {
		return 0
	}
	return time.Duration(1<<bucket) * time.Millisecond
}

// Quantile returns a duration that the share q of all durations does not exceed. It is
// at most twice too long. It is 0 if nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Total == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(h.Total)+0.5))
	seen := uint64(0)
	for i, n := range h.Buckets {
		seen += uint64(n)
		if seen >= rank && BucketUpperBound(i) > 0 {
			return min(BucketUpperBound(i), h.Longest)
		}
	}
	return h.Longest
}
