package keyspace

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// History is what has happened to the locks since somebody began to watch: the
// finished holds of each lock and, for a while, whole pictures to look back at.
// Its memory is bounded; what was not heard of for longest is forgotten first.
//
// It is fed with the snapshots of a watcher, or of a recording, in order. The
// zero value is ready to use, and for one goroutine at a time.
type History struct {
	Keep   time.Duration // how far back pictures are kept; 0 = 10 minutes
	Memory int64         // bytes that the pictures may take, roughly; 0 = 64 MiB

	records   twoGenCache[*record]
	snapshots snapshotBuffer
}

// Defaults of a History.
const (
	defaultKeep     = 10 * time.Minute
	defaultMemory   = 64 << 20
	maxRecordHolds  = 64 // finished holds of a lock, the latest
	maxRecordOwners = 32 // owners of a lock, the latest
)

// Add takes in the next snapshot, with the events in it.
func (h *History) Add(s Snapshot) {
	for _, e := range s.Events {
		h.learn(e)
	}
	h.snapshots.add(s, cmp.Or(h.Keep, defaultKeep), cmp.Or(h.Memory, defaultMemory))
}

// At returns the picture as it was at t: the newest that is not later. It is
// false if none is kept that is so old. Such a picture has no events.
func (h *History) At(t time.Time) (Snapshot, bool) { return h.snapshots.at(t) }

// Span returns the times of the oldest and of the newest picture that are kept;
// both are zero if there is none.
func (h *History) Span() (oldest, newest time.Time) { return h.snapshots.span() }

// Before returns the time of the last picture before t, and After that of the
// first one after it; false if there is none.
func (h *History) Before(t time.Time) (time.Time, bool) { return h.snapshots.adjacent(t, -1) }

// After returns the time of the first picture after t; false if there is none.
func (h *History) After(t time.Time) (time.Time, bool) { return h.snapshots.adjacent(t, +1) }

// Of returns what is known of a lock. It is a copy, and empty if the lock was
// never heard of.
func (h *History) Of(id ID) Record {
	r, known := h.records.get(id)
	if !known {
		return Record{}
	}
	c := r.Record
	c.Holds = slices.Clone(r.Holds)
	c.Owners = slices.Clone(r.Owners)
	c.Ended = maps.Clone(r.Ended)
	return c
}

// Record is what is known of the past of one lock.
type Record struct {
	Holds   []Hold            // finished, in the order of their ends; the latest 64
	Owners  []Owner           // whoever has held it, who came last first; the latest 32
	Ended   map[EventKind]int // how holds ended, and how often
	Renewed int               // renewals seen
	Queued  int               // times somebody began to wait

	HoldTimes Histogram // of finished holds whose begin is known
	HandOffs  Histogram // from the end of a hold to the begin of the next
}

// Hold is a finished possession of a lock.
type Hold struct {
	Holder  Holder    // as it was last seen
	From    time.Time // zero = before we looked
	To      time.Time
	End     EventKind     // Released, Expired …
	HandOff time.Duration // for how long the lock had been free before; -1 = not known
}

// Owner is somebody who has held a lock.
type Owner struct {
	Name  string        // Holder.Name
	Holds int           // finished ones
	Total time.Duration // of those whose begin is known
	Last  time.Time     // when it last had the lock
}

// record is a Record that grows.
type record struct {
	Record
	freed  time.Time                // when the last hold ended; zero = not known
	begins map[string]time.Duration // of those who hold it: for how long it had been free before
}

// learn takes in one event.
func (h *History) learn(e Event) {
	r := h.records.getOrAdd(e.Lock.ID(), func() *record {
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

// begin books that somebody came. Who comes to join others was handed nothing.
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

// end books a finished hold.
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

// owner returns the entry of an owner and puts it first; who has not been seen
// for longest makes room.
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
