package lock

import (
	"context"
	"fmt"
	"time"
)

// Mutex is a lock with one holder at a time. It is not reentrant: its holder
// waits for itself like anybody else.
//
// On the wire it is the key itself, a string that holds the token, with a TTL:
// what `SET key token NX PX ttl` makes, so it and clients that use that form
// exclude each other.
//
// A Mutex is a value to lock by, not a lock that is held: many goroutines may
// use one at once.
type Mutex struct {
	client *Client
	key    string
	opts   Options
	bad    error // what is wrong with the arguments, told when it is used
}

var _ Locker = (*Mutex)(nil)

// Mutex returns the lock of that name; the key is used as it is. It sends
// nothing. Options that cannot work are reported as [ErrArgument] by Lock and
// TryLock.
func (c *Client) Mutex(key string, o Options) *Mutex {
	o, err := o.withDefaults()
	return &Mutex{client: c, key: key, opts: o, bad: err}
}

// TryLock implements [Locker].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	return m.attempt(ctx, &wait{began: time.Now()})
}

// Lock implements [Locker]. Of all who wait for the key through this client
// only the first talks to the server, so a thousand waiting goroutines cost
// what one does.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	w := &wait{began: time.Now()}
	turn, err := m.client.turns.take(ctx, m.client.closed, m.key)
	if err != nil {
		return nil, fmt.Errorf("lock: wait for %q: %w", m.key, err)
	}
	defer m.client.turns.give(turn)
	return m.stand(ctx, w, turn)
}

// ready refuses what must not reach the server.
func (m *Mutex) ready(ctx context.Context) error {
	switch {
	case m.bad != nil:
		return fmt.Errorf("lock %q: %w", m.key, m.bad)
	case m.client.closed.Err() != nil:
		return fmt.Errorf("lock %q: %w", m.key, ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("lock %q: %w", m.key, ctx.Err())
	}
	return nil
}

// wait is one call of Lock or TryLock, as far as events tell of it.
type wait struct {
	began    time.Time
	attempts int
}

// attempt asks the server once, with a token of its own. If no reply comes, the
// attempt is undone in the background: nobody would ever release it.
func (m *Mutex) attempt(ctx context.Context, w *wait) (*Lease, error) {
	token, err := newToken(m.client.owner)
	if err != nil {
		return nil, err
	}
	w.attempts++
	sent := time.Now()
	reply, err := mutexAcquire.run(ctx, m.client.wire, m.key, token, m.opts.TTL.Milliseconds())
	if outcomeUnknown(err) {
		m.client.undo(m.key, token, sent.Add(m.opts.TTL))
	}
	if err != nil {
		return nil, describe("acquire", m.key, err)
	}
	if held := heldBy(m.key, reply); held != nil {
		if w.attempts == 1 {
			m.client.tell(Event{Kind: Contended, At: time.Now(), Key: m.key, Owner: m.client.owner})
		}
		return nil, held
	}
	lease := newLease(m, token, sent)
	m.client.keeper.add(lease)
	if m.client.closed.Err() != nil { // meanwhile: Close may have missed this one
		lease.finish(ErrClosed)
		m.client.undo(m.key, token, sent.Add(m.opts.TTL))
		return nil, describe("acquire", m.key, ErrClosed)
	}
	m.client.tell(Event{Kind: Acquired, At: lease.began, Key: m.key, Owner: m.client.owner, Token: token,
		Attempts: w.attempts, Waited: lease.began.Sub(w.began)})
	return lease, nil
}

// heldBy reads the reply of mutex_acquire; nil means the lock is ours.
func heldBy(key string, reply any) *HeldError {
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return nil
	}
	token, _ := fields[0].(string)
	ttl, _ := fields[1].(int64)
	return &HeldError{Key: key, Token: token, TTL: time.Duration(ttl) * time.Millisecond}
}

// undoPause is the time between two tries to undo.
const undoPause = 10 * time.Millisecond

// undo takes back an acquire whose outcome nobody knows, until it is answered
// or the key would have expired by itself. It is on its way, behind the acquire,
// when undo returns; the rest happens in the background.
//
// It asks twice: on the connection of the acquire the first answer settles it,
// but after a broken connection the undo may have overtaken an acquire that
// still sat in the server's buffers.
func (t *transport) undo(key, token string, until time.Time) {
	release := func() *call {
		return mutexRelease.send(t.alive, t.wire, key, token, name(key, "free"))
	}
	first := release()
	t.tasks.spawn(func() {
		ctx, cancel := context.WithDeadline(t.alive, until)
		defer cancel()
		for c, answers := first, 0; ; c = release() {
			if _, err := c.wait(ctx, t.wire); err == nil {
				answers++
			}
			if answers == 2 || !pauseFor(ctx, undoPause) {
				return
			}
		}
	})
}
