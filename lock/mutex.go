package lock

import "context"

var mutexScripts = &scripts{
	acquire: newScript("waiters_common", "waiters_acquire", "mutex_acquire"),
	extend:  newScript("mutex_extend"),
	release: newQuickRelease(mutexEnds, "mutex_release"),
	peek:    newScript("mutex_peek"),
	isValue: true,
}

const mutexEnds = "local ends, i = redis.call('GET', KEYS[1]) == ARGV[1], 2\n"

// mutex is the lock of [Client.Mutex].
type mutex struct{ locker }

// Mutex returns the lock with that name, which one holder has at a time; key is used unchanged.
// It sends nothing. It is not reentrant: a holder that locks it again waits for itself.
//
// Of the goroutines that wait for a key through one client, only the first talks to the server: a
// thousand waiters cost as much as one. A release wakes one process, the one that has waited
// longest, however many wait. Another client may acquire the lock before the woken process does.
// After that has happened 9 times, the next release hands the lock to the process. A woken process
// that is stopped delays the others by 1 to 2 s, or by up to 7.5 s if many wait.
//
// On the server it is one key, a string that holds the token, with a TTL: the result of
// `SET key token NX PX ttl`. A Mutex and other clients that use this command exclude each other. A
// further key, a zset, holds the processes that wait; it vanishes with the last of them.
func (c *Client) Mutex(key string, o Options) (Locker, error) {
	b, err := c.newBase(key, o, "a mutex")
	if err != nil {
		return nil, err
	}
	b.protocol = newScriptProtocol(mutexScripts, c.core, key, o.Fence)
	m := &mutex{locker{base: b}}
	m.try = m.attempt
	return m, nil
}

// attempt acquires by SET NX if the lock is probably free, or if that paid last time. Before the
// server has run one of our scripts it uses acquire, which shows that the user may also run the
// release.
func (m *mutex) attempt(ctx context.Context, r *request) (_ *Lease, err error) {
	var h *hold
	if r.attempts == 0 && r.token == "" && !m.opts.Fence && m.client.scripted.Load() && (!r.contended || r.queue.asksBySet()) {
		h, err = m.acquireOnceBy(ctx, r, func(token string) future {
			return m.protocol.(*scriptProtocol).setFirst(ctx, token, m.opts.keyTTL(), r.queue)
		})
		if r.contended {
			r.queue.noteSet(err == nil)
		}
	} else {
		h, err = m.acquireOnce(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	if !m.client.scripted.Load() {
		m.client.scripted.Store(true)
	}
	return newLease(h), nil
}
