package oracle

import (
	"cmp"
	"maps"
	"slices"
)

// Crossings are the holds of an order that began while as many others had a key as the lock admits.
type Crossings struct {
	Overlaps int64      `json:"overlap_count"`
	Excused  int64      `json:"excused_count"` // part of Overlaps: a cut may have ended the hold of one of the others
	Examples []Crossing `json:"examples"`      // the first ones
}

// Crossing is one of [Crossings].
type Crossing struct {
	Key    string   `json:"key"`
	Client string   `json:"client"`
	Others []string `json:"other_clients"` // clients
}

// maxExamples is the largest number of examples.
const maxExamples = 20

// orderRoom is how many holds of an order a history keeps, or a few times as many as were inside at once.
const orderRoom = 1 << 15

// Add records a hold that is over, of a client that is counted from 1. Its begin and its end are
// places in one order of all holds. The history forgets older holds: an overlap with a hold that is
// added much later than those after it may be missed.
func (h *History) Add(client int, keys []string, shared bool, from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parts == nil {
		h.parts, h.room = make([][]recordedHold, 1), orderRoom
	}
	for _, name := range keys {
		h.parts[0] = append(h.parts[0], recordedHold{since: from, got: from, left: to, key: h.key(name), client: int32(client - 1), shared: shared})
	}
	if len(h.parts[0]) >= h.room {
		h.settle()
	}
}

// CutOrder cuts an order at a place from which on locks are deleted, or until which they were.
func (h *History) CutOrder(at int64, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !over {
		h.cuts = append(h.cuts, cut{key: Everybody, from: at, to: notYet})
	} else if n := len(h.cuts); n > 0 {
		h.cuts[n-1].to = at
	}
}

// Crossings returns those of an order so far.
func (h *History) Crossings() Crossings {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.judge(notYet)
}

// judge returns the settled crossings, and with them those that began before a place.
func (h *History) judge(before int64) Crossings {
	found, excused := make(map[int64]recordedHold), make(map[int64]bool) // by begin
	all := slices.Concat(h.parts...)
	for ofKey := range byKey(all) {
		for r := range overlapping(ofKey, h.Limit) {
			if _, known := found[r.got]; !known && !r.settled && r.got < before { // known: by another key
				found[r.got], excused[r.got] = r, true
			}
		}
		parts, _ := h.split(ofKey)
		for _, part := range parts {
			for r := range overlapping(part, h.Limit) {
				delete(excused, r.got)
			}
		}
	}
	sum := h.settled
	sum.Overlaps += int64(len(found))
	sum.Excused += int64(len(excused))
	sum.Examples = slices.Clone(sum.Examples)
	for _, at := range slices.Sorted(maps.Keys(found)) {
		if len(sum.Examples) < maxExamples {
			sum.Examples = append(sum.Examples, h.crossing(found[at], all))
		}
	}
	return sum
}

// crossing returns a hold with those of all that it crosses.
func (h *History) crossing(r recordedHold, all []recordedHold) Crossing {
	c := Crossing{Key: h.names[r.key], Client: r.owner()}
	for _, other := range all {
		if other.key == r.key && other.got < r.got && r.got < other.left && !(other.shared && r.shared) {
			c.Others = append(c.Others, other.owner())
		}
	}
	return c
}

// settle counts the crossings of the older half of the holds for good, and forgets those of them that
// have ended since.
func (h *History) settle() {
	all := h.parts[0]
	slices.SortFunc(all, func(a, b recordedHold) int { return cmp.Compare(a.got, b.got) })
	middle := all[len(all)/2].got
	h.settled = h.judge(middle)
	kept := all[:0]
	for _, r := range all {
		if r.settled = r.settled || r.got < middle; r.left >= middle {
			kept = append(kept, r)
		}
	}
	if h.parts[0] = kept; 4*len(kept) > 3*h.room {
		h.room *= 2
	}
	h.cuts = slices.DeleteFunc(h.cuts, func(c cut) bool { return c.to < kept[0].got })
}
