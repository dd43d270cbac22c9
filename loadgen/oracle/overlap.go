package oracle

import (
	"cmp"
	"slices"
	"time"
)

// countWorkOverlap counts a hold that begins while another is inside, also after the end
// of a lease.
func (o *Oracle) countWorkOverlap(v *Hold) {
	others := v.section.full(v.conflicts)
	if others == nil {
		return
	}
	if v.overlapped == nil {
		v.overlapped = others
	}
	o.count(func(found *Violations) { found.WorkOverlap.Count++ })
}

// excludes reports whether v must not enter while other, which entered earlier, is
// inside.
func (v *Hold) excludes(other *Hold) bool { return v.conflicts(other) && other.valid() }

// conflicts reports whether v and other must not work at the same time.
func (v *Hold) conflicts(other *Hold) bool {
	return !(v.Shared && other.Shared)
}

func inOrder(a, b *Hold) (first, second *Hold) {
	if b.number < a.number {
		return b, a
	}
	return a, b
}

// before returns first and other holds that entered before second, as many as the limit
// at most, in order of entry.
func (s *criticalSection) before(first, second *Hold) []*Hold {
	all := []*Hold{first}
	for _, other := range s.inside {
		if len(all) < s.limit && other.number < second.number && other.conflicts(second) && other != first {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b *Hold) int { return cmp.Compare(a.number, b.number) })
	return all
}

// doubtful returns the overlap of earlier holds with second as a suspect.
func (o *Oracle) doubtful(earliest []*Hold, second *Hold) suspect {
	since := second.since // its reply may have been on its way while an earlier one was granted
	for _, v := range earliest {
		since = earlier(since, v.since)
	}
	return suspect{violation: Overlap, since: since, at: second.Began, client: Everybody, keys: []int{second.section.index}}
}

// causeOf names the known cause of an overlap, "" if there is none.
func (o *Oracle) causeOf(earliest []*Hold, second *Hold) string {
	o.mu.Lock()
	t, _ := o.explain(o.doubtful(earliest, second))
	o.mu.Unlock()
	if t != nil {
		return string(t.Cause)
	}
	for _, v := range []*Hold{earliest[0], second} {
		if cause := v.knownCause(); cause != "" {
			return cause
		}
	}
	return ""
}

// knownCause names the fault and the flaw of a holder. section.mu must be held.
func (v *Hold) knownCause() string {
	switch {
	case v.fault != "" && v.Flaw != "":
		return v.fault + ", " + v.Flaw
	case v.fault != "":
		return v.fault
	}
	return v.Flaw
}

// countOverlap counts an overlap of a hold with earlier ones, as many as the limit.
// section.mu must be held.
func (o *Oracle) countOverlap(earlier []*Hold, second *Hold) {
	second.granted, second.overlapped = true, earlier
	for _, v := range earlier {
		o.confirm(v, second.Began)
	}
	s := o.doubtful(earlier, second)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found.Overlap.Count++
	if o.explained(s) {
		o.found.Overlap.Excused++
	} else {
		o.suspects = append(o.suspects, s)
	}
}

// overlapEnded reports holds that were inside at the same time, the last of which is
// second, when the first of them leaves. It reports each counted overlap once.
func (o *Oracle) overlapEnded(second *Hold, now time.Time) {
	if second.reported {
		return
	}
	second.reported = true
	first, others := second.overlapped[0], second.overlapped[1:]
	e := Evidence{
		Violation: WorkOverlap, Key: first.section.name, At: second.Began, Length: now.Sub(second.Began),
		First: first.side(now), Second: second.side(now), Cause: o.causeOf(second.overlapped, second),
	}
	end := earlier(first.end(now), second.end(now))
	for _, other := range others {
		e.Others = append(e.Others, other.side(now))
		end = earlier(end, other.end(now))
	}
	if second.granted {
		e.Violation, e.Length = Overlap, max(end.Sub(second.Began), 0)
	}
	o.keep(e)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// longestOverlap returns the longest time for which v and others, as many as the limit,
// were inside together, and the last of these to enter. The others are in order of
// entry. It stops when that many have valid leases: later ones were inside together
// with v for a shorter time.
func (v *Hold) longestOverlap(others []*Hold, now time.Time) (longest time.Duration, last *Hold) {
	limit := v.section.limit
	var two [2]time.Time
	ends := two[:0] // the latest ends so far, as many as the limit, in descending order
	end, valid := v.end(now), 0
	for _, other := range others {
		if !v.conflicts(other) {
			continue
		}
		ended := other.end(now)
		i, _ := slices.BinarySearchFunc(ends, ended, func(a, b time.Time) int { return b.Compare(a) })
		ends = slices.Insert(ends, i, ended)
		ends = ends[:min(len(ends), limit)]
		if len(ends) == limit {
			began := v.Began
			if other.Began.After(began) {
				began = other.Began
			}
			if d := earlier(end, ends[limit-1]).Sub(began); d > longest {
				longest, last = d, other
			}
		}
		if other.valid() {
			if valid++; valid == limit {
				break
			}
		}
	}
	return longest, last
}

// Unlocked records a successful release that the client decided on at decided. If
// as many holders as the limit entered before that and after the client, and are still
// inside, one of them has lost its lock to this release. If success is only claimed, the
// violation is counted when that holder turns out to have lost its lock: by [Oracle.Removed]
// or because another client enters.
func (o *Oracle) Unlocked(v *Hold, decided, now time.Time) {
	for v, s := range v.locked {
		o.unlocked(v, s, decided, now)
	}
}

func (o *Oracle) unlocked(v *Hold, s *criticalSection, decided, now time.Time) {
	taken := 0
	doubt := suspect{violation: ForeignUnlock, since: now, at: now, client: Everybody, keys: []int{s.index}}
	if v.nested() { // the entry that remained may have been the only one on the server
		doubt.since = v.since
	}
	for _, other := range s.inside {
		if other.number < v.number || !other.Began.Before(decided) || !v.excludes(other) {
			continue
		}
		doubt.since = earlier(doubt.since, other.since) // its lock may have been deleted, and its reply have come late
		if taken++; taken < s.limit {
			continue
		}
		if o.excused(doubt) {
			return
		}
		e := Evidence{
			Violation: ForeignUnlock, Key: s.name, At: now,
			First: v.side(now), Second: other.side(now), Cause: v.knownCause(),
		}
		if o.config.Claimed {
			other.removed = &e
		} else {
			o.keep(e)
		}
		return
	}
}

// Removed records that the lock of a holder was lost before the end of its lease. It
// counts the foreign unlock that explains this, if there was one.
func (o *Oracle) Removed(v *Hold, now time.Time) {
	for v := range v.locked {
		o.confirm(v, now)
	}
}

// confirm counts the foreign unlock that removed the lock of v before now, unless something
// else may have removed it. section.mu must be held.
func (o *Oracle) confirm(v *Hold, now time.Time) {
	e := v.removed
	v.removed = nil
	if e == nil {
		return
	}
	if !o.excused(suspect{violation: ForeignUnlock, since: v.since, at: now, client: v.Client, keys: []int{v.section.index}}) {
		o.keep(*e)
	}
}
