package loadgen

import "time"

// timeline holds the figures of each of the newest seconds of a run. Only the current
// second has a histogram.
type timeline struct {
	past     []Second // oldest first, at most HistorySeconds-1
	current  int      // number of the current second
	acquired int64
	wait     *histogram
}

func newTimeline() *timeline { return &timeline{wait: newHistogram()} }

// add counts an acquire at a time since the start. If its second is over, the current
// second counts it.
func (t *timeline) add(at, wait time.Duration) {
	t.advance(at)
	t.acquired++
	t.wait.add(wait)
}

// giveUp counts a wait that ended without an acquire.
func (t *timeline) giveUp(at, wait time.Duration) {
	t.advance(at)
	t.wait.addCensored(wait)
}

// advance closes every second that ended before a time since the start.
func (t *timeline) advance(at time.Duration) {
	elapsed := int(at/time.Second) - t.current
	if elapsed <= 0 {
		return
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
