// Package recording stores snapshots in a file or in a directory of files, and finds them by
// their time.
//
// A recording is a sequence of segments: each is a gzip stream of JSON lines that begins with
// the full state. A file has one segment after the other, so `zcat FILE | jq` reads it.
package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"locktop/keyspace"
)

// ErrFormat means that a file is not a recording, or has another version.
var ErrFormat = errors.New("not a recording that this version of locktop can read")

// Writer writes a recording to one file, with all events and exact deadlines. If the process
// is killed, the snapshots that were written are readable. It is not safe for concurrent use.
type Writer struct {
	out     io.Writer
	token   func(string) string
	segment *segmentWriter // nil: none is open
	start   time.Time      // of the segment
}

// NewWriter returns a Writer. With redact, tokens are replaced by hashes, because a token
// permits its reader to release the lock.
func NewWriter(to io.Writer, redact bool) *Writer {
	w := &Writer{out: to}
	if redact {
		w.token = newRedactor().hash
	}
	return w
}

// Add writes the next snapshot.
func (w *Writer) Add(s keyspace.Snapshot) error {
	if w.segment == nil || s.At.Before(w.segment.last.At) {
		return w.begin(s)
	}
	switch err := w.segment.Add(s); {
	case errors.Is(err, errLargeFrame):
		return w.begin(s)
	case err != nil:
		return fmt.Errorf("record: %w", err)
	case s.At.Sub(w.start) < 30*time.Second && !w.segment.full(math.MaxInt64): // a jump back reads at most one segment
		return nil
	}
	s.Events, s.Notices = nil, nil // they are in the segment that ends
	return w.begin(s)
}

// begin ends the open segment and writes the full state of the next one.
func (w *Writer) begin(s keyspace.Snapshot) error {
	err := w.Close()
	if err == nil {
		w.start = s.At
		w.segment, err = newSegmentWriter(w.out, s, w.token, true)
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Close ends the recording. It does not close the file.
func (w *Writer) Close() error {
	if w.segment == nil {
		return nil
	}
	ended := w.segment
	w.segment = nil
	return ended.Close()
}

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
