package lock

import (
	"context"
	"sync"
	"time"
)

// redlockKey is where the copies of a [Redlock] stand, the same for all attempts at it.
type redlockKey struct {
	*nodeSet
	core        *core
	key         string
	fenceKeys   []string // the key of the counter; empty without one
	freeChannel string
	nodeTimeout time.Duration // with one node
}

// redlockAttempt are what stands on the nodes for one attempt at a [Redlock] and, if it
// succeeds, for the hold: the same token on each. They are a form that serves one
// token only. Nothing in here waits for a node longer than its time-out.
//
// Once they were handed back, nothing that could make a copy is sent any more, and
// the release travels behind all that was: it has the last word.
type redlockAttempt struct {
	*redlockKey
	states []nodeState // by node
	token  string      // set by acquire, which comes first; guarded by mu for whoever else hands back

	mu        sync.Mutex
	expiresBy time.Time     // by then the last copy has expired
	releasing *releaseRound // nil = they are kept
}

func (v *redlockKey) newAttempt() *redlockAttempt {
	c := &redlockAttempt{redlockKey: v, states: make([]nodeState, len(v.nodes))}
	for i, n := range v.nodes {
		c.states[i].node = n
	}
	return c
}

// acquire implements [form]. It asks the first node; waiting for the reply asks
// the others.
func (c *redlockAttempt) acquire(_ context.Context, token string, ttl time.Duration, _ int) future {
	return c.startAcquire(token, ttl, false)
}

// startAcquire is acquire of a lock that is probably free, or not.
func (c *redlockAttempt) startAcquire(token string, ttl time.Duration, free bool) future {
	c.mu.Lock()
	c.token = token
	c.mu.Unlock()
	c.extendExpiry(ttl)
	return newAcquireRound(c, ttl, free)
}

// extendExpiry notes that a copy may be made now that lives for ttl.
func (c *redlockAttempt) extendExpiry(ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end := time.Now().Add(ttl); end.After(c.expiresBy) {
		c.expiresBy = end
	}
}

// extend implements [form]. A copy is prolonged where it stood, or may have, and
// only those nodes decide. On the others, which could not be asked before or came
// back empty, it is put anew, to count the next time: so a node that lost it does
// not stay without, but what most nodes lost is not revived.
func (c *redlockAttempt) extend(_ context.Context, _ string, ttl time.Duration) future {
	c.extendExpiry(ttl)
	x := &extension{}
	x.round = c.newRound(x, len(c.states))
	repair := c.newRound(ignoreReplies{}, len(c.states))
	keep, take := c.extendCmd(ttl), c.acquireCmd(ttl, nil)
	for i := range c.states {
		if c.states[i].probablyHeld() {
			x.ask(i, keep)
		} else {
			x.record(nodeReply{node: i, err: errCopyGone})
			c.states[i].onSend()
			repair.ask(i, take)
		}
	}
	x.allSent()
	repair.allSent()
	return x
}

// ignoreReplies is the tally of a round whose answers decide nothing.
type ignoreReplies struct{}

func (ignoreReplies) count(nodeReply) {}

// release implements [form].
func (c *redlockAttempt) release(context.Context, string, int) future {
	return c.releaseCopies(c.freeChannel)
}

// undo implements [undoer].
func (c *redlockAttempt) undo() { c.releaseCopies(c.freeChannel) }

func (c *redlockAttempt) channel() string { return c.freeChannel }

func (c *redlockAttempt) lockKey() string { return c.key }

// releaseCopies releases all copies, once. Nodes that do not answer in time are asked
// until they have, or the copy has expired.
func (c *redlockAttempt) releaseCopies(channel string) *releaseRound {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.releasing == nil {
		c.releasing = newReleaseRound(c, channel, c.expiresBy)
	}
	return c.releasing
}

// votes returns what is known of each node.
func (c *redlockAttempt) votes() []Vote {
	votes := make([]Vote, len(c.states))
	for i := range c.states {
		votes[i] = c.states[i].vote()
	}
	return votes
}
