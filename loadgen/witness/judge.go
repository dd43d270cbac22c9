package witness

import "slices"

// Judge finds the overlaps in the entries of a witness. It is pure: it knows the order of
// the entries, and no time. The zero value judges locks with one holder. Not safe for
// concurrent use.
type Judge struct {
	// Limit is the number of clients that may hold a lock at once, at least 1.
	Limit int

	inside map[string][]*hold // by key
	open   map[string]*hold   // by ID: those that may still be proven
	newest map[string]*hold   // by client
	losses int                // faults that delete locks now
	counts Counts
}

// Counts are the results of a [Judge].
type Counts struct {
	Holds    int64     `json:"hold_count"`    // that entered
	Proven   int64     `json:"proven_count"`  // of them, those whose lease was valid until they had left
	Overlaps int64     `json:"overlap_count"` // proven holds that entered while as many others were inside as the lock admits
	Excused  int64     `json:"excused_count"` // part of Overlaps: a fault may have deleted the lock of one of the others
	Examples []Overlap `json:"examples"`      // the first ones
}

// Overlap is a hold that entered while others were inside.
type Overlap struct {
	Key    string   `json:"key"`
	Client string   `json:"client"`
	Others []string `json:"other_clients"` // clients
}

// maxExamples is the largest number of examples.
const maxExamples = 20

// maxFound is the largest number of holds that a new hold is compared with. More than that
// are inside at once only if a lock fails all the time.
const maxFound = 1000

// hold is one hold of a client.
type hold struct {
	entry   Entry
	left    bool
	proven  bool
	counted bool     // as an overlap
	crossed []string // clients of the proven holds that were inside when it entered, and exclude it
	intact  int      // of them, those whose lock no fault can have deleted before
	mayLose bool     // a fault may delete, or have deleted, its lock
	excused bool     // counted as excused
	later   []later  // those that entered while it was inside; nil once it is proven
	last    *hold    // of the same client; nil = there is none, or it is proven or dropped
}

// later is a hold that entered while another one was inside.
type later struct {
	*hold
	intact bool // no fault can have deleted the lock of the other one before
}

// Entry is an entry of a witness. A client enters, or leaves, or neither.
type Entry struct {
	ID        string   `json:"-"`                   // an entry by which a client enters identifies its hold
	Client    string   `json:"client,omitempty"`    // that enters
	Keys      []string `json:"keys,omitempty"`      // of its hold
	Shared    bool     `json:"shared,omitempty"`    // the hold is for reading
	Left      string   `json:"left,omitempty"`      // ID of a hold whose client leaves
	Confirmed []string `json:"confirmed,omitempty"` // IDs of holds that have left, with a lease that was still valid
	Loss      Loss     `json:"loss,omitempty"`
	Trips     []int64  `json:"trips,omitempty"`  // times to add earlier entries of the process, in µs
	Unseen    int64    `json:"unseen,omitempty"` // number of earlier entries of the process that could not be added
}

// Loss says that a fault that deletes locks begins or is over.
type Loss string

// Values of Loss, besides the empty string.
const (
	LossBegan Loss = "began"
	LossEnded Loss = "ended"
)

// Add adds the next entry.
func (j *Judge) Add(e Entry) {
	for _, id := range e.Confirmed {
		if h := j.open[id]; h != nil && h.left {
			j.prove(h)
		}
	}
	switch {
	case e.Client != "":
		j.enter(e)
	case e.Left != "":
		if h := j.open[e.Left]; h != nil && !h.left {
			h.left = true
			j.remove(h)
		}
	case e.Loss == LossBegan:
		j.losses++
		for _, inside := range j.inside {
			for _, h := range inside {
				h.mayLose = true
			}
		}
	case e.Loss == LossEnded:
		j.losses = max(j.losses-1, 0)
	}
}

// prove notes that the lease of a hold was valid until it had left.
func (j *Judge) prove(h *hold) {
	h.proven = true
	j.counts.Proven++
	for _, l := range h.later {
		l.crossed = append(l.crossed, h.entry.Client)
		if l.intact {
			l.hold.intact++
		}
		j.judge(l.hold)
	}
	j.judge(h)
	j.drop(h)
}

// drop forgets a hold that is proven or will not be, and the one before.
func (j *Judge) drop(h *hold) {
	if h.last != nil {
		j.drop(h.last)
	}
	h.later, h.last = nil, nil
	delete(j.open, h.entry.ID)
}

// Counts returns the results so far.
func (j *Judge) Counts() Counts {
	c := j.counts
	c.Examples = slices.Clone(c.Examples)
	return c
}

func (j *Judge) enter(e Entry) {
	if j.inside == nil {
		j.inside, j.open, j.newest = make(map[string][]*hold), make(map[string]*hold), make(map[string]*hold)
	}
	j.counts.Holds++
	h := &hold{entry: e, last: j.newest[e.Client], mayLose: j.losses > 0}
	j.newest[e.Client], j.open[e.ID] = h, h
	j.dropOlder(h)
	for _, key := range e.Keys {
		inside := j.inside[key]
		for _, other := range inside[:min(len(inside), maxFound)] {
			again := len(other.later) > 0 && other.later[len(other.later)-1].hold == h // by another key
			if !again && !(h.entry.Shared && other.entry.Shared) {
				other.later = append(other.later, later{h, !other.mayLose})
			}
		}
		j.inside[key] = append(inside, h)
	}
}

// dropOlder drops the holds of a client that will not be proven, because it enters again: a
// client has one hold at a time. The confirmation of its last hold may be on its way.
func (j *Judge) dropOlder(h *hold) {
	last := h.last
	if last == nil {
		return
	}
	if !last.left {
		j.remove(last)
		j.drop(last)
	}
	if last.last != nil {
		j.drop(last.last)
		last.last = nil
	}
}

// remove removes a hold from the inside of its keys.
func (j *Judge) remove(h *hold) {
	for _, key := range h.entry.Keys {
		others := slices.DeleteFunc(j.inside[key], func(other *hold) bool { return other == h })
		if len(others) == 0 {
			delete(j.inside, key)
			continue
		}
		j.inside[key] = others
	}
}

// judge counts a hold if it is proven, and as many proven holds were inside when it entered
// as the lock admits.
func (j *Judge) judge(h *hold) {
	admits := max(j.Limit, 1)
	if h.excused && h.intact >= admits {
		h.excused = false
		j.counts.Excused--
	}
	if !h.proven || h.counted || len(h.crossed) < admits {
		return
	}
	h.counted = true
	j.counts.Overlaps++
	if h.intact < admits {
		h.excused = true
		j.counts.Excused++
	}
	if len(j.counts.Examples) < maxExamples {
		j.counts.Examples = append(j.counts.Examples, Overlap{h.entry.Keys[0], h.entry.Client, slices.Clone(h.crossed)})
	}
}
