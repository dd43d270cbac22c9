package lock

import (
	"slices"
	"time"
)

// beat has the line give signs of life for its waiters, all together, until the
// last of them has called stop. The form is that of the line's lock.
func (l *line) beat(c *Client, f *fairForm) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beating++
	if l.beating == 1 {
		l.heart = time.AfterFunc(beatEvery, func() { l.pulse(c.transport, f) })
	}
	return l.unbeat
}

func (l *line) unbeat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beating--
	if l.beating == 0 {
		l.heart.Stop()
	}
}

// pulse gives one sign of life, and sets the time of the next.
func (l *line) pulse(t *transport, f *fairForm) {
	l.mu.Lock()
	if l.beating > 0 {
		l.heart.Reset(beatEvery)
	}
	l.mu.Unlock()
	t.tasks.spawn(func() {
		for chunk := range slices.Chunk(l.tokens(), beatSize) {
			l.wakeMissing(f.beat(t.alive, chunk).wait(t.alive))
		}
	})
}

// wakeMissing wakes those of our waiters that the server has no place for: their
// message was lost, or they were taken for dead.
func (l *line) wakeMissing(reply any, err error) {
	if err != nil {
		return
	}
	missing, _ := reply.([]any)
	for _, token := range missing {
		if token, ok := token.(string); ok {
			l.wake(token)
		}
	}
}
