package formats

import (
	"fmt"
	"time"

	"locktop/keyspace"
)

// dramatiqTTL is the default of the longest hold in Python's dramatiq.
const dramatiqTTL = 15 * time.Minute

// dramatiq is the format of dramatiq's ConcurrentRateLimiter: the number of permits in
// use, under any name. The value has no holders, so one holder stands for all permits.
// Every counter with a TTL looks the same.
func dramatiq() keyspace.Format {
	return keyspace.Format{
		Name:          "dramatiq",
		Library:       "dramatiq",
		Source:        "github.com/Bogdanp/dramatiq: dramatiq/rate_limits/concurrent.py",
		Signature:     "the value is a small number, and the key expires within a quarter of an hour",
		Type:          "string",
		MaxConfidence: keyspace.Possible,
		Probe: func(key, first string) keyspace.Confidence {
			if !digits(first, 1, 4) || countsOtherwise(key) {
				return keyspace.No
			}
			return keyspace.Possible
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			out, ok := count(e.Value)
			if !ok || !digits(e.Value, 1, 4) || countsOtherwise(e.Key) || e.Expires.IsZero() || e.Expires.Sub(e.Now) > dramatiqTTL {
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.Semaphore, Evidence: []string{fmt.Sprintf("%d permits would be in use", out)}}
			if out > 0 {
				l.Holders = []keyspace.Holder{dramatiqHolder(out)}
			}
			return l, keyspace.Possible
		},
		Samples: []keyspace.Sample{{
			Name:     "two permits are in use",
			Commands: [][]string{{"SET", "pdf-workers", "2", "PX", "900000"}},
			Want: keyspace.Lock{
				Key: "pdf-workers", Kind: keyspace.Semaphore, Confidence: keyspace.Possible,
				Evidence: []string{"2 permits would be in use"},
				Holders:  []keyspace.Holder{dramatiqHolder(2)},
			},
			TTL: dramatiqTTL,
		}},
	}
}

// dramatiqHolder returns the holder that stands for all permits in use.
func dramatiqHolder(out int) keyspace.Holder {
	return keyspace.Holder{ID: "permits", Label: "permits", Count: out}
}
