package cli

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"locktop/cli/connect"
	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/metrics"
)

// pacedSource is a source whose n-th snapshot takes waits[n] and costs work[n]. It
// records when each was asked for.
type pacedSource struct {
	waits, work []time.Duration
	began       time.Time
	asked       []time.Duration // since began
}

func (s *pacedSource) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	n := len(s.asked)
	s.asked = append(s.asked, time.Since(s.began))
	at := func(all []time.Duration) time.Duration {
		if n < len(all) {
			return all[n]
		}
		return 0
	}
	select {
	case <-time.After(at(s.waits)):
	case <-ctx.Done():
		return keyspace.Snapshot{}, ctx.Err()
	}
	return keyspace.Snapshot{At: time.Now(), Complete: true, Cost: keyspace.Cost{OwnTime: at(s.work)}}, nil
}

// pace returns when an export with --every 1s asks a source for snapshots within a time.
func pace(t *testing.T, s *pacedSource, within time.Duration) []time.Duration {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		target := &exportTarget{name: "a", open: &connect.Target{}, source: s}
		e := &export{
			program: &program{}, options: exportOptions{every: time.Second},
			targets: []*exportTarget{target}, metrics: metrics.New(metrics.Options{}, metrics.Target{Name: "a"}),
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		e.watch(ctx, target)
	})
	return s.asked
}

func TestAnExportDoesNotPauseAfterAStall(t *testing.T) {
	for _, stall := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 8 * time.Minute} {
		s := &pacedSource{waits: []time.Duration{0, stall}}
		asked := pace(t, s, stall+5*time.Second)
		back := time.Second + stall
		want := []time.Duration{0, time.Second, back, back + time.Second}
		check.True(t, slices.Equal(asked[:min(4, len(asked))], want), "after a stall of %v: updates at %v, want %v", stall, asked, want)
	}
}

func TestAnExportKeepsItsPaceOnASlowNetwork(t *testing.T) {
	s := &pacedSource{waits: slices.Repeat([]time.Duration{800 * time.Millisecond}, 100)}
	asked := pace(t, s, 60*time.Second-time.Millisecond)
	check.True(t, len(asked) == 60, "%d updates within a minute, want 60", len(asked))
}

// A long pause of the machine does not count as work for ever.
func TestAnExportWorksForATwentiethOfTheTime(t *testing.T) {
	s := &pacedSource{
		waits: []time.Duration{0, 3 * time.Second},
		work:  []time.Duration{200 * time.Millisecond, 200 * time.Millisecond, time.Hour},
	}
	asked := pace(t, s, 40*time.Second)
	want := []time.Duration{0, 4 * time.Second, 11 * time.Second, 26 * time.Second, 27 * time.Second}
	check.True(t, slices.Equal(asked[:min(5, len(asked))], want), "updates at %v, want %v", asked, want)
}
