package oracle

import (
	"slices"
	"time"
)

// WaiterAdded records that a client waits for a key.
func (o *Oracle) WaiterAdded(key int, a *Attempt) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 {
		s.wanted = a.Asked
	}
	s.waiting++
	if o.config.InOrder {
		s.queue = append(s.queue, a)
	}
}

// Queued records that the lock refused a waiting client, which then begins to queue.
func (o *Oracle) Queued(key, client int, now time.Time) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.attemptOf(client); i >= 0 && s.queue[i].queued.IsZero() {
		s.queue[i].queued = now
	}
}

func (s *criticalSection) attemptOf(client int) int {
	return slices.IndexFunc(s.queue, func(a *Attempt) bool { return a.Client == client })
}

// unqueue records that a client stops waiting.
func (s *criticalSection) unqueue(client int) {
	s.waiting--
	if i := s.attemptOf(client); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// WaiterGone records that a client stops waiting without a hold.
func (o *Oracle) WaiterGone(key, client int, now time.Time) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 1 {
		o.checkStuck(s, now)
	}
	s.unqueue(client)
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
