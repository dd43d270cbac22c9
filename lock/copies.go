package lock

import (
	"context"
	"sync"
	"time"
)

// venue is where the copies of a [Redlock] stand, the same for all attempts at it.
type venue struct {
	*ensemble
	transport *transport
	key       string
	fence     []string // the key of the counter; empty without one
	free      string
	patience  time.Duration // with one node
}

// copies are what stands on the nodes for one attempt at a [Redlock] and, if it
// succeeds, for the hold: the same token on each. They are a form that serves one
// token only. Nothing in here waits for a node longer than its time-out.
//
// Once they were handed back, nothing that could make a copy is sent any more, and
// the release travels behind all that was: it has the last word.
type copies struct {
	*venue
	sites []site // by node
	token string // set by acquire, which comes first; guarded by mu for whoever else hands back

	mu    sync.Mutex
	until time.Time // by then the last copy has expired
	back  *handback // nil = they are kept
}

func (v *venue) newCopies() *copies {
	c := &copies{venue: v, sites: make([]site, len(v.nodes))}
	for i, n := range v.nodes {
		c.sites[i].node = n
	}
	return c
}

// acquire implements [form]. It asks the first node; waiting for the reply asks
// the others.
func (c *copies) acquire(_ context.Context, token string, ttl time.Duration, _ int) pending {
	return c.elect(token, ttl, false)
}

// elect is acquire of a lock that is probably free, or not.
func (c *copies) elect(token string, ttl time.Duration, free bool) pending {
	c.mu.Lock()
	c.token = token
	c.mu.Unlock()
	c.lastFor(ttl)
	return newElection(c, ttl, free)
}

// lastFor notes that a copy may be made now that lives for ttl.
func (c *copies) lastFor(ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end := time.Now().Add(ttl); end.After(c.until) {
		c.until = end
	}
}

// extend implements [form]. A copy is prolonged where it stood, or may have, and
// only those nodes decide. On the others, which could not be asked before or came
// back empty, it is put anew, to count the next time: so a node that lost it does
// not stay without, but what most nodes lost is not revived.
func (c *copies) extend(_ context.Context, _ string, ttl time.Duration) pending {
	c.lastFor(ttl)
	x := &extension{}
	x.round = c.newRound(x, len(c.sites))
	repair := c.newRound(uncounted{}, len(c.sites))
	keep, take := c.keep(ttl), c.take(ttl, nil)
	for i := range c.sites {
		if c.sites[i].stands() {
			x.ask(i, keep)
		} else {
			x.skip(answer{node: i, err: errGone})
			c.sites[i].taking()
			repair.ask(i, take)
		}
	}
	x.allAsked()
	repair.allAsked()
	return x
}

// uncounted is the tally of a round whose answers decide nothing.
type uncounted struct{}

func (uncounted) count(answer) {}

// release implements [form].
func (c *copies) release(context.Context, string, int) pending { return c.handBack(c.free) }

// undo implements [undoer].
func (c *copies) undo() { c.handBack(c.free) }

func (c *copies) channel() string { return c.free }

func (c *copies) lockKey() string { return c.key }

// handBack releases all copies, once. Nodes that do not answer in time are asked
// until they have, or the copy has expired.
func (c *copies) handBack(channel string) *handback {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.back == nil {
		c.back = newHandback(c, channel, c.until)
	}
	return c.back
}

// votes returns what is known of each node.
func (c *copies) votes() []Vote {
	votes := make([]Vote, len(c.sites))
	for i := range c.sites {
		votes[i] = c.sites[i].vote()
	}
	return votes
}
