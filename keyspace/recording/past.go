package recording

import (
	"cmp"
	"sync"
	"time"

	"locktop/keyspace"
)

// Past is what a recording knows of the locks at its end, for the process that continues
// it: the begins of holds and waits do not end with a restart. It is safe for concurrent
// use. A nil Past is empty.
type Past struct {
	hash func(string) string

	mu    sync.Mutex
	at    time.Time                     // of the last frame
	locks map[keyspace.ID]keyspace.Lock // on any server: a failover during the restart may have replaced it
}

// maxPastAge is the age of a last frame that a process still continues. A client may use
// its holder ID for one hold after the other, so an old frame proves little.
const maxPastAge = 10 * time.Minute

// newPast reads the end of the recording in a directory, which may be empty. hash is how
// its tokens were replaced.
func newPast(dir string, hash func(string) string) *Past {
	r, err := Open(dir)
	if err != nil {
		return nil
	}
	defer r.Close()
	_, end := r.Span()
	s, err := r.At(end, time.Time{})
	if err != nil {
		return nil
	}
	p := &Past{hash: hash, at: s.At, locks: make(map[keyspace.ID]keyspace.Lock, len(s.Locks))}
	for _, l := range s.Locks {
		p.locks[l.ID().OnAnyNode()] = *l
	}
	return p
}

// Lock returns a lock, which was read at a time of the server, as the recording has it at
// its end. It is false if the lock is not there, or if the end is more than 10 min earlier.
func (p *Past) Lock(now keyspace.Lock, at time.Time) (was keyspace.Lock, known bool) {
	if p == nil {
		return keyspace.Lock{}, false
	}
	p.mu.Lock()
	was, known = p.locks[now.ID().OnAnyNode()]
	p.mu.Unlock()
	if age := at.Sub(p.at); !known || age < 0 || age > maxPastAge {
		return keyspace.Lock{}, false
	}
	ids := make(map[string]string) // by hash
	for _, h := range now.Holders {
		ids[p.hash(h.ID)] = h.ID
	}
	for _, w := range now.Waiters {
		ids[p.hash(w.ID)] = w.ID
	}
	was = mapLock(was, func(name string) string { return name }, func(hash string) string { return cmp.Or(ids[hash], hash) })
	was.Node = now.Node
	return was, true
}

// Forget empties the past, which is useless once all locks have been read.
func (p *Past) Forget() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locks = nil
}
