package lock

import (
	"slices"
	"time"
)

// startHeartbeat has the line give signs of life for its waiters, all together, until the
// last of them has called stop. The form is that of the line's lock.
func (q *waitQueue) startHeartbeat(c *Client, p *fairProtocol) (stop func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heartbeats++
	if q.heartbeats == 1 {
		q.heartbeatTimer = time.AfterFunc(heartbeatInterval, func() { q.sendHeartbeat(c.core, p) })
	}
	return q.stopHeartbeat
}

func (q *waitQueue) stopHeartbeat() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heartbeats--
	if q.heartbeats == 0 {
		q.heartbeatTimer.Stop()
	}
}

// sendHeartbeat gives one sign of life, and sets the time of the next.
func (q *waitQueue) sendHeartbeat(c *core, p *fairProtocol) {
	q.mu.Lock()
	if q.heartbeats > 0 {
		q.heartbeatTimer.Reset(heartbeatInterval)
	}
	q.mu.Unlock()
	c.tasks.spawn(func() {
		for chunk := range slices.Chunk(q.tokens(), heartbeatBatch) {
			q.wakeDropped(p.heartbeat(c.alive, chunk).wait(c.alive))
		}
	})
}

// wakeDropped wakes those of our waiters that the server has no place for: their
// message was lost, or they were taken for dead.
func (q *waitQueue) wakeDropped(reply any, err error) {
	if err != nil {
		return
	}
	missing, _ := reply.([]any)
	for _, token := range missing {
		if token, ok := token.(string); ok {
			q.wakeToken(token)
		}
	}
}
