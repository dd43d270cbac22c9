package lock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

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

// Redis 8.4 and Valkey 8.1 extend a lock without a script: SET key token IFEQ token PX
// ttl writes only if the value is the token. It costs the server about 0.55 of the CPU
// time of the script. A server that does not know IFEQ refuses the command and changes
// nothing; the same request then calls the script, and the client asks no more.

// extendIfEqual returns the command that extends a lock whose value is its token, and the
// script as its fallback. The reply is OK, or nil if the token does not hold the lock.
func (c *core) extendIfEqual(key, token string, ttl time.Duration) (argv []string, otherwise fallback) {
	argv = []string{"set", key, token, "ifeq", token, "px", millis(ttl)}
	return argv, fallback{c.refusesIfEqual, func() (*script, []string) {
		extend := mutexScripts.extend
		return extend, append(extend.argv(nil, []string{key}), token, millis(ttl))
	}}
}

// refusesIfEqual reports whether a SET with IFEQ has failed with an error after which
// the script may succeed: the server does not know IFEQ, the user may not call SET, or
// memory is full, which SET does not accept and the script does.
func (c *core) refusesIfEqual(err error) bool {
	if redis.HasErrorPrefix(err, "syntax error") || redis.HasErrorPrefix(err, "NOPERM") {
		c.noIfEqual.Store(true)
		return true
	}
	return redis.HasErrorPrefix(err, "OOM")
}

// ifEqual is an extension by SET with IFEQ.
type ifEqual struct{ *call }

// wait implements [future]. It returns the reply that the script has: 1, or 0 if the
// token does not hold the lock.
func (e ifEqual) wait(ctx context.Context) (any, error) {
	reply, err := e.call.wait(ctx)
	switch {
	case err != nil:
	case reply == "OK":
		reply = int64(1)
	case reply == nil:
		reply = int64(0)
	}
	return reply, err
}
