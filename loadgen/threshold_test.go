package loadgen

import (
	"testing"
	"time"

	"locktop/internal/check"
)

// A relative threshold is a threshold once its baseline is known. Until then, no run meets it.
func TestARelativeThresholdNeedsABaseline(t *testing.T) {
	var m Metrics
	m.Latency.Wait = Latency{Count: 1, P99: 105 * time.Millisecond}
	relative := check.Must(ParseThreshold("wait.p99 <= 110% of baseline"))(t)
	check.Equal(t, relative.String(), "wait.p99 <= 110% of baseline")
	check.False(t, relative.Met(m), "a run meets it without a baseline")
	for baseline, met := range map[float64]bool{0.1: true, 0.09: false} {
		at := relative.Against(baseline)
		check.True(t, at.Met(m) == met && !at.Relative, "against %v s: %s, met: %v", baseline, at, !met)
	}
	for _, wrong := range []string{"wait.p99 < 110 of baseline", "wait.p99 < x% of baseline", "wait.p99 < -5% of baseline"} {
		_, err := ParseThreshold(wrong)
		check.True(t, err != nil, "%q is a threshold", wrong)
	}
}
