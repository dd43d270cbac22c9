package lock

import (
	"slices"
	"time"
)

// startHeartbeat has the queue send heartbeats for all of its waiters until each of
// them has called stop. p is the protocol of the queue's lock.
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

// sendHeartbeat sends one heartbeat and schedules the next.
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

// wakeDropped wakes the waiters that the server no longer has in its queue: their lock
// was handed over and the message was lost, or they counted as dead.
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
