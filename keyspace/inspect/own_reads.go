package inspect

import (
	"maps"
	"sync"
	"time"

	"locktop/keyspace"
)

// OwnReads is when single keys were read by the scanners of a process, so that its watchers do
// not take these reads for requests of other clients. It is safe for concurrent use; a nil one
// stores nothing, and the zero value is ready.
type OwnReads struct {
	mu    sync.Mutex
	reads map[keyspace.ID]ownRead
}

// ownRead is the last read of a key.
type ownRead struct {
	at     int64 // ms of the server's clock at its end
	active int   // reads that have not ended
}

// begin notes that a read begins.
func (o *OwnReads) begin(id keyspace.ID) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reads == nil {
		o.reads = make(map[keyspace.ID]ownRead)
	}
	r := o.reads[id]
	r.active++
	o.reads[id] = r
}

// end notes that a read has ended by now, on the server's clock.
func (o *OwnReads) end(id keyspace.ID, now time.Time) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.reads[id]
	r.active--
	r.at = max(r.at, now.UnixMilli())
	o.reads[id] = r
	if len(o.reads) > 10_000 { // drop those that are older than any request that a watcher reports
		maps.DeleteFunc(o.reads, func(_ keyspace.ID, r ownRead) bool {
			return r.active == 0 && now.Sub(time.UnixMilli(r.at)) > 2*maxAskedAge
		})
	}
}

// last returns the end of the last read of a key, in ms of the server's clock, and whether a
// read has not ended.
func (o *OwnReads) last(id keyspace.ID) (at int64, active bool) {
	if o == nil {
		return 0, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.reads[id]
	return r.at, r.active > 0
}
