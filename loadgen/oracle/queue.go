package oracle

import (
	"slices"
	"time"
)

// Queued records that the lock refused a waiting client, which then begins to queue.
func (o *Oracle) Queued(key, client int, now time.Time) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.queue, func(v *Hold) bool { return v.Client == client }); i >= 0 && s.queue[i].queued.IsZero() {
		s.queue[i].queued = now
	}
}

// unqueue records that a client stops waiting.
func (s *criticalSection) unqueue(v *Hold) {
	s.waiting--
	if i := slices.Index(s.queue, v); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// queueWithin is how long after its first refusal, or after a stall, a client of a fair lock
// may take to join the queue, because it subscribes first.
const queueWithin = 2 * time.Second

// checkOvertaken checks whether the lock served the holder before a client that was in the
// queue when the holder asked.
func (o *Oracle) checkOvertaken(v *Hold) {
	joined := v.Asked.Add(-queueWithin) // a client that could join then was in the queue
	for _, a := range v.section.queue {
		if !a.queued.IsZero() && a.queued.Before(joined) && a.Ctx.Err() == nil {
			o.suspect(suspect{count: &o.found.Overtaken.Count, client: a.Client, keys: []int{v.section.index}, since: a.Asked, joined: joined, evidence: &Evidence{
				Violation: Overtaken, Key: v.section.name, At: v.Began, Length: v.Began.Sub(a.queued),
				First: Side{Client: a.Client + 1, From: a.Asked, To: v.Began}, Second: v.side(v.Began),
			}})
			return
		}
	}
}
