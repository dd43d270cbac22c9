package keyspace

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"locktop/keyspace/internal/cache"
)

// History is the past of the locks since the watch began: the finished holds of each
// lock and, for some time, whole snapshots. Its memory is bounded; the locks without
// events for the longest time are forgotten first.
//
// Its input are the snapshots of a Watcher or of a recording, in order. The zero value
// is ready to use. It is for one goroutine at a time.
type History struct {
	Keep   time.Duration // how long snapshots are kept; 0 = 10 minutes
	Memory int64         // approximate bytes of the snapshots; 0 = 64 MiB

	records   cache.Map[ID, *record]
	snapshots snapshotBuffer
}

// Defaults of a History.
const (
	defaultKeep     = 10 * time.Minute
	defaultMemory   = 64 << 20
	maxRecordHolds  = 64 // latest finished holds of a lock
	maxRecordOwners = 32 // latest owners of a lock
)

// Add adds the next snapshot and its events.
func (h *History) Add(s Snapshot) {
	for _, e := range s.Events {
		h.learn(e)
	}
	h.snapshots.add(s, cmp.Or(h.Keep, defaultKeep), cmp.Or(h.Memory, defaultMemory))
}

// At returns the newest snapshot that is not later than t, without events. It is false
// if none is that old.
func (h *History) At(t time.Time) (Snapshot, bool) { return h.snapshots.at(t) }

// Span returns the times of the oldest and the newest snapshot; both are zero without
// snapshots.
func (h *History) Span() (oldest, newest time.Time) { return h.snapshots.span() }

// Before returns the time of the last snapshot before t; false if there is none.
func (h *History) Before(t time.Time) (time.Time, bool) { return h.snapshots.adjacent(t, -1) }

// After returns the time of the first snapshot after t; false if there is none.
func (h *History) After(t time.Time) (time.Time, bool) { return h.snapshots.adjacent(t, +1) }

// Of returns the record of a lock. It is a copy, and empty for an unknown lock.
func (h *History) Of(id ID) Record {
	r, known := h.records.Get(id)
	if !known {
		return Record{}
	}
	c := r.Record
	c.Holds = slices.Clone(r.Holds)
	c.Owners = slices.Clone(r.Owners)
	c.Ended = maps.Clone(r.Ended)
	return c
}

// Record is the known past of one lock.
type Record struct {
	Holds   []Hold            // finished, in the order of their ends; the latest 64
	Owners  []Owner           // the most recent first; the latest 32
	Ended   map[EventKind]int // number of ended holds by kind
	Renewed int               // number of renewals
	Queued  int               // number of waiters that joined

	HoldTimes Histogram // of finished holds with a known begin
	HandOffs  Histogram // from the end of a hold to the begin of the next
}

// Hold is a finished hold of a lock.
type Hold struct {
	Holder  Holder    // as last seen
	From    time.Time // zero = before the watch began
	To      time.Time
	End     EventKind     // Released, Expired …
	HandOff time.Duration // how long the lock had been free before; -1 = unknown
}

// Owner is a holder name with its statistics.
type Owner struct {
	Name  string        // Holder.Name
	Holds int           // number of finished holds
	Total time.Duration // duration of the holds with a known begin
	Last  time.Time     // when it last had the lock
}

// record is a Record that is being filled.
type record struct {
	Record
	freed  time.Time                // end of the last hold; zero = unknown
	begins map[string]time.Duration // by current holder: how long the lock had been free before
}

// learn records one event.
func (h *History) learn(e Event) {
	r := h.records.GetOrAdd(e.Lock.ID(), func() *record {
		return &record{Record: Record{Ended: make(map[EventKind]int)}, begins: make(map[string]time.Duration)}
	})
	switch {
	case e.Kind == Acquired:
		r.begin(e)
	case e.Kind.Ends():
		r.end(e)
	case e.Kind == Renewed:
		r.Renewed++
	case e.Kind == WaiterJoined:
		r.Queued++
	}
}

// begin records a new holder. A holder that joins others has no hand-off time.
func (r *record) begin(e Event) {
	r.owner(e.Holder.Name()).Last = e.At
	if r.freed.IsZero() || len(e.Lock.Holders) > 1 {
		return
	}
	free := max(0, e.At.Sub(r.freed))
	r.HandOffs.Add(free)
	if len(r.begins) < maxRecordOwners {
		r.begins[e.Holder.ID] = free
	}
}

// end records a finished hold.
func (r *record) end(e Event) {
	hold := Hold{Holder: e.Holder, From: e.Holder.Since, To: e.Ended(), End: e.Kind, HandOff: -1}
	if free, known := r.begins[e.Holder.ID]; known {
		hold.HandOff = free
		delete(r.begins, e.Holder.ID)
	}
	if len(r.Holds) >= maxRecordHolds {
		r.Holds = slices.Delete(r.Holds, 0, 1)
	}
	r.Holds = append(r.Holds, hold)
	r.Ended[e.Kind]++
	o := r.owner(e.Holder.Name())
	o.Holds++
	o.Last = hold.To
	if e.Held > 0 {
		o.Total += e.Held
		r.HoldTimes.Add(e.Held)
	}
	r.freed = hold.To
	if e.Kind == Vanished {
		r.freed = time.Time{}
	}
}

// owner moves the entry of an owner to the front and returns it. A new owner replaces
// the one seen least recently.
func (r *record) owner(name string) *Owner {
	i := slices.IndexFunc(r.Owners, func(o Owner) bool { return o.Name == name })
	o := Owner{Name: name}
	switch {
	case i >= 0:
		o = r.Owners[i]
		r.Owners = slices.Delete(r.Owners, i, i+1)
	case len(r.Owners) >= maxRecordOwners:
		r.Owners = r.Owners[:maxRecordOwners-1]
	}
	r.Owners = slices.Insert(r.Owners, 0, o)
	return &r.Owners[0]
}
