package oracle

// cut is a trouble that deleted the locks of some keys. Times are those of a recordedHold.
type cut struct {
	cause    Cause
	keys     map[int32]bool // nil = all
	from, to int64
}

// Cut cuts the history at troubles that deleted locks; see [Oracle.Losses]. Names are those of
// the keys that the troubles number. Of a hold that such a trouble may have ended, [History.Prove]
// uses only the part before it, and holds before and after it are compared with their like.
func (h *History) Cut(names []string, losses []Trouble) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range losses {
		c := cut{cause: t.Cause, from: t.From.Sub(h.zero).Nanoseconds(), to: t.To.Sub(h.zero).Nanoseconds()}
		if t.lasting {
			c.to = notYet
		}
		if t.Key != Everybody {
			key, known := h.keys[names[t.Key]]
			if !known {
				continue // no client had it
			}
			c.keys = map[int32]bool{key: true}
		}
		h.cuts = append(h.cuts, c)
	}
}

// split returns the holds of one key, in the same order, in the parts between its cuts, and
// the number of holds that are left out: the lock may have been acquired before a cut, and
// the reply came after it.
func (h *History) split(all []recordedHold) (parts [][]recordedHold, leftOut int64) {
	parts = [][]recordedHold{all}
	for _, c := range h.cuts {
		if c.keys != nil && !c.keys[all[0].key] {
			continue
		}
		var apart [][]recordedHold
		for _, part := range parts {
			var before, after []recordedHold
			for _, r := range part {
				switch {
				case r.since > c.to:
					after = append(after, r)
				case r.got >= c.from:
					leftOut++
				default:
					r.left = min(r.left, c.from)
					before = append(before, r)
				}
			}
			apart = append(apart, before, after)
		}
		parts = apart
	}
	return parts, leftOut
}
