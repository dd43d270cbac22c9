package lock

import (
	"slices"
	"time"
)

// startHeartbeat has the line give signs of life for its waiters, all together, until the
// last of them has called stop. The form is that of the line's lock.
func (l *waitQueue) startHeartbeat(c *Client, f *fairProtocol) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heartbeats++
	if l.heartbeats == 1 {
		l.heartbeatTimer = time.AfterFunc(heartbeatInterval, func() { l.sendHeartbeat(c.core, f) })
	}
	return l.stopHeartbeat
}

func (l *waitQueue) stopHeartbeat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heartbeats--
	if l.heartbeats == 0 {
		l.heartbeatTimer.Stop()
	}
}

// sendHeartbeat gives one sign of life, and sets the time of the next.
func (l *waitQueue) sendHeartbeat(t *core, f *fairProtocol) {
	l.mu.Lock()
	if l.heartbeats > 0 {
		l.heartbeatTimer.Reset(heartbeatInterval)
	}
	l.mu.Unlock()
	t.tasks.spawn(func() {
		for chunk := range slices.Chunk(l.tokens(), heartbeatBatch) {
			l.wakeDropped(f.heartbeat(t.alive, chunk).wait(t.alive))
		}
	})
}

// wakeDropped wakes those of our waiters that the server has no place for: their
// message was lost, or they were taken for dead.
func (l *waitQueue) wakeDropped(reply any, err error) {
	if err != nil {
		return
	}
	missing, _ := reply.([]any)
	for _, token := range missing {
		if token, ok := token.(string); ok {
			l.wakeToken(token)
		}
	}
}
