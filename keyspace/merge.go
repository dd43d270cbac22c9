package keyspace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Part is what one of several servers, or of several databases, has reported.
type Part struct {
	Snapshot        // empty if there is none
	Addr     string // host:port
	Err      error  // why the snapshot is missing or incomplete
}

// Seen reports whether there is a snapshot, even of a part of the server.
func (p Part) Seen() bool { return p.Err == nil || !p.At.IsZero() }

// MergeOptions say how several servers belong together.
type MergeOptions struct {
	Mode    string // mode of the snapshot's Server, if not the mode of the servers; in a cluster a key exists once
	Redlock bool   // the parts are the independent servers of a Redlock
	// MinConfidence is the required confidence of a merged Redlock.
	MinConfidence Confidence
	Before        []*Lock // locks of the merged Redlock before: what its silent servers had
}

// Merge merges the snapshots of several servers, whose times are on one clock.
func Merge(parts []Part, o MergeOptions) Snapshot {
	var s Snapshot
	s.Complete = true
	for _, p := range parts {
		s.addNodesOf(p)
		s.addSnapshot(p.Snapshot)
	}
	s.Locks = allLocks(parts)
	if o.Mode == "cluster" {
		s.dropMovedTwice(parts)
	}
	if o.Redlock {
		voters := s.voters(parts)
		s.lost = lostBy(voters)
		s.Locks, s.Events, s.Losses = mergeRedlock(voters, o, s.lost), nil, nil
		s.dropAlike()
		slices.SortFunc(s.Locks, CompareLocks)
	}
	if o.Mode != "" {
		s.Server.Mode = o.Mode
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	slices.SortFunc(s.Nodes, func(a, b Node) int { return strings.Compare(a.Addr, b.Addr) })
	return s
}

// allLocks returns the locks of all parts, in order. With one part it returns the
// same slice, so that [DeltaOf] detects immediately that nothing has changed.
func allLocks(parts []Part) []*Lock {
	if len(parts) == 1 {
		return parts[0].Locks
	}
	var all []*Lock
	for _, p := range parts {
		all = append(all, p.Locks...)
	}
	slices.SortFunc(all, CompareLocks)
	return all
}

// dropMovedTwice removes one of two locks with the same key that two cluster nodes
// reported: the lock moved between the reads.
func (s *Snapshot) dropMovedTwice(parts []Part) {
	if unique := UniqueLocks(s.Locks); len(unique) == len(s.Locks) {
		return
	}
	latest := slices.Clone(parts)
	slices.SortStableFunc(latest, func(a, b Part) int { return b.At.Compare(a.At) })
	s.Locks = nil
	for _, p := range latest {
		s.Locks = append(s.Locks, p.Locks...)
	}
	s.Locks = UniqueLocks(s.Locks)
	slices.SortFunc(s.Locks, CompareLocks)
	for i := range s.Nodes {
		s.Nodes[i].Locks = 0
	}
	for i := range s.Locks {
		at := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Addr == s.Locks[i].Node })
		if at >= 0 {
			s.Nodes[at].Locks++
		}
	}
}

// UniqueLocks returns the locks without those whose key an earlier lock has.
func UniqueLocks(all []*Lock) []*Lock {
	known := make(map[ID]bool, len(all))
	return slices.DeleteFunc(slices.Clone(all), func(l *Lock) bool {
		at := l.ID().OnAnyNode()
		seen := known[at]
		known[at] = true
		return seen
	})
}

// addNodesOf adds the nodes of a source.
func (s *Snapshot) addNodesOf(p Part) {
	if p.Err != nil {
		s.Complete = false
		known := Node{Error: p.Err.Error()}
		how := "is missing"
		if p.Seen() {
			known.Server, known.Keys, known.Locks = p.Server, p.Cost.Keys, len(p.Locks)
			how = fmt.Sprintf("is read only in part, it has %d keys", p.Cost.Keys)
		}
		known.Addr = p.Addr
		s.Problems = appendNew(s.Problems, fmt.Sprintf("%s %s: %v", p.Addr, how, p.Err))
		s.addNode(known)
		return
	}
	for _, n := range p.Nodes {
		n.Addr = p.Addr
		s.addNode(n)
	}
}

// addNode adds a server, or another database of a known server.
func (s *Snapshot) addNode(n Node) {
	i := slices.IndexFunc(s.Nodes, func(known Node) bool { return known.Addr == n.Addr })
	if i < 0 {
		s.Nodes = append(s.Nodes, n)
		return
	}
	known := &s.Nodes[i]
	known.Scanned = known.Scanned && n.Scanned
	if n.ScannedAt.Before(known.ScannedAt) {
		known.ScannedAt = n.ScannedAt
	}
	known.ScanTime = max(known.ScanTime, n.ScanTime)
	if n.AnsweredAt.Before(known.AnsweredAt) {
		known.AnsweredAt = n.AnsweredAt
	}
	known.Keys += n.Keys
	known.Locks += n.Locks
	known.Possible, known.PossibleAtLeast = known.Possible+n.Possible, known.PossibleAtLeast || n.PossibleAtLeast
	known.AskBlind = cmp.Or(known.AskBlind, n.AskBlind)
	known.Unread = cmp.Or(known.Unread, n.Unread)
	if !n.Up {
		known.Up, known.Error = false, n.Error
	}
}

// addSnapshot adds everything but the locks and nodes of a source.
func (s *Snapshot) addSnapshot(one Snapshot) {
	if s.Server.Version == "" {
		s.Server = one.Server
	}
	s.At = Later(s.At, one.At)
	if s.Events == nil { // most snapshots are of one source
		s.Events = slices.Clip(one.Events)
	} else {
		s.Events = append(s.Events, one.Events...)
	}
	s.EventsDropped += one.EventsDropped
	s.Notices = append(s.Notices, one.Notices...)
	s.Losses = append(s.Losses, one.Losses...)
	if s.Inversions == nil { // the sources of a process share the graph
		s.Inversions = one.Inversions
	}
	s.Complete = s.Complete && one.Complete
	s.Problems = appendNew(s.Problems, one.Problems...)
	s.Watch = s.Watch.and(one.Watch)
	s.Cost.Add(one.Cost)
	s.Cost.Scanned += one.Cost.Scanned
	s.Cost.Keys += one.Cost.Keys
}

// appendNew appends the strings that are not in the slice yet.
func appendNew(all []string, more ...string) []string {
	for _, m := range more {
		if !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// Shifted returns the snapshot with all server times shifted by d.
func (s Snapshot) Shifted(d time.Duration) Snapshot {
	s.At = s.At.Add(d)
	s.Locks = slices.Clone(s.Locks)
	for i := range s.Locks {
		s.Locks[i] = new(s.Locks[i].shifted(d))
	}
	s.Events, s.Losses = slices.Clone(s.Events), slices.Clone(s.Losses)
	for i := range s.Losses {
		s.Losses[i].At, s.Losses[i].Holder = s.Losses[i].At.Add(d), s.Losses[i].Holder.shifted(d)
	}
	for i := range s.Events {
		e := &s.Events[i]
		e.At, e.Lock, e.Holder, e.Waiter = e.At.Add(d), e.Lock.shifted(d), e.Holder.shifted(d), e.Waiter.shifted(d)
	}
	return s
}

func (l Lock) shifted(d time.Duration) Lock {
	l.Expires, l.Renewed, l.UnheldSince = shift(l.Expires, d), shift(l.Renewed, d), shift(l.UnheldSince, d)
	l.ReadAt, l.AskedAt = shift(l.ReadAt, d), shift(l.AskedAt, d)
	if l.Past != nil {
		past := *l.Past
		past.ContendedAt, past.WaiterSeen, past.FreeSince = shift(past.ContendedAt, d), shift(past.WaiterSeen, d), shift(past.FreeSince, d)
		l.Past = &past
	}
	l.Holders, l.Waiters, l.Votes = slices.Clone(l.Holders), slices.Clone(l.Waiters), slices.Clone(l.Votes)
	for i := range l.Votes {
		l.Votes[i].Expires = shift(l.Votes[i].Expires, d)
	}
	for i := range l.Holders {
		l.Holders[i] = l.Holders[i].shifted(d)
	}
	for i := range l.Waiters {
		l.Waiters[i] = l.Waiters[i].shifted(d)
	}
	return l
}

func (h Holder) shifted(d time.Duration) Holder {
	h.Since, h.Seen, h.Expires, h.Renewed, h.DisconnectedAt = shift(h.Since, d), shift(h.Seen, d), shift(h.Expires, d), shift(h.Renewed, d), shift(h.DisconnectedAt, d)
	h.ConnectedAt = shift(h.ConnectedAt, d)
	return h
}

func (w Waiter) shifted(d time.Duration) Waiter {
	w.Since, w.Seen, w.Expires = shift(w.Since, d), shift(w.Seen, d), shift(w.Expires, d)
	return w
}

// shift shifts a time unless it is zero.
func shift(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}

// mergeRedlock merges the locks of the servers of a Redlock: one lock for each key,
// with a vote of each server. Its holder is the token with a majority. Without a
// majority all tokens are holders and the state is Partial. A server that does not answer
// may have what it had before.
func mergeRedlock(parts []Part, o MergeOptions, lost lostVotes) []*Lock {
	byID := make(map[ID]copies)
	var order []ID
	add := func(i int, l *Lock) {
		id := l.ID().OnAnyNode()
		if byID[id] == nil {
			byID[id] = make(copies, len(parts))
			order = append(order, id)
		}
		byID[id][i] = cmp.Or(byID[id][i], l)
	}
	for i, p := range parts {
		for _, l := range p.Locks {
			add(i, l)
		}
	}
	before := make(map[ID]*Lock, len(o.Before))
	for _, l := range o.Before {
		before[l.ID().OnAnyNode()] = l
		for i, p := range parts {
			if v := l.vote(p.Addr); p.Err != nil && v.last() != "" && l.mayKeep(v.last(), byID[l.ID().OnAnyNode()], parts) {
				add(i, l.copyOf(v))
			}
		}
	}
	locks := make([]*Lock, 0, len(order))
	for _, id := range order {
		l := byID[id].merge(parts)
		if was := before[id]; was != nil {
			l.noteLost(was, lost)
		}
		if l.Confidence >= o.MinConfidence {
			locks = append(locks, &l)
		}
	}
	return locks
}

// voters returns one part for each server: of all of its databases, and without the parts under
// further addresses of a server.
func (s *Snapshot) voters(parts []Part) (all []Part) {
	first := make(map[string]string) // address by run ID
	for _, p := range parts {
		if id := p.Server.RunID; id != "" {
			first[id] = cmp.Or(first[id], p.Addr)
			if first[id] != p.Addr {
				s.Complete = false
				s.Problems = appendNew(s.Problems, fmt.Sprintf("%s and %s are one server, which has one vote", first[id], p.Addr))
				continue
			}
		}
		i := slices.IndexFunc(all, func(known Part) bool { return known.Addr == p.Addr })
		if i < 0 {
			all = append(all, p)
			continue
		}
		known := &all[i]
		known.Events = slices.Concat(known.Events, p.Events)
		known.Locks, known.Complete, known.Err = slices.Concat(known.Locks, p.Locks), known.Complete && p.Complete, cmp.Or(known.Err, p.Err)
	}
	return all
}

// dropAlike drops the possible locks of a Redlock of which there are too many alike: those that
// no vote has confirmed, as their whole class.
func (s *Snapshot) dropAlike() {
	counts := make(map[string]int)
	for _, l := range s.Locks {
		if l.Confidence == Possible {
			counts[AlikeClass(l.Key)]++
		}
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n <= MaxAlike })
	if len(counts) == 0 {
		return
	}
	for _, l := range s.Locks {
		if l.Confidence > Possible {
			delete(counts, AlikeClass(l.Key))
		}
	}
	s.Locks = slices.DeleteFunc(s.Locks, func(l *Lock) bool {
		return l.Confidence == Possible && counts[AlikeClass(l.Key)] > 0
	})
	s.Problems = appendNew(s.Problems, AlikeProblems(counts)...)
}

// copies are the locks of all servers under one key, in the order of the servers; nil
// = no lock.
type copies []*Lock

// merge makes one lock of the copies.
func (c copies) merge(parts []Part) Lock {
	var mostCertain *Lock
	for _, l := range c {
		if l != nil && (mostCertain == nil || l.Confidence > mostCertain.Confidence) {
			mostCertain = l
		}
	}
	l, addrs := *mostCertain, make([]string, len(parts))
	l.Kind, l.Votes = Redlock, make([]Vote, len(parts))
	for i, p := range parts {
		l.Votes[i], addrs[i] = c.vote(i, p), p.Addr
	}
	l.Node = strings.Join(addrs, ",")
	for _, one := range c {
		if one != nil && one.AskedAt.After(l.AskedAt) {
			l.AskedAt, l.AskedPercent = one.AskedAt, one.AskedPercent
		}
	}
	l.Holders = nil
	claims := c.holdsByToken()
	if len(claims) > 0 && l.Confidence == Possible && len(claims[0]) > 1 && len(claims[0][0].ID) >= MinTokenLen {
		l = l.WithEvidence(fmt.Sprintf("%d of %d servers have the same value", len(claims[0]), len(parts)))
	}
	for _, holds := range claims {
		if len(l.Holders) > 0 && l.hasQuorum() {
			break // other tokens are leftovers or too late
		}
		l.Holders = append(l.Holders, holds.holder(Quorum(len(parts))))
	}
	if len(l.Holders) > 0 {
		l.Expires = l.Holders[0].Expires
	}
	return l
}

// hasQuorum reports whether a majority of the servers of a Redlock has the token of the
// first holder.
func (l *Lock) hasQuorum() bool {
	return l.HolderVotes() >= Quorum(len(l.Votes))
}

// HolderVotes returns the number of servers that have the token of the first holder of a
// Redlock.
func (l *Lock) HolderVotes() (n int) {
	for _, v := range l.Votes {
		if len(l.Holders) > 0 && v.Token == l.Holders[0].ID {
			n++
		}
	}
	return n
}

// Quorum returns the majority of a number of servers.
func Quorum(servers int) int { return servers/2 + 1 }

// vote returns the vote of one server. A server that does not answer, or is not fully
// scanned, is silent.
func (c copies) vote(i int, p Part) Vote {
	v := Vote{Node: p.Addr}
	l := c[i]
	switch {
	case l == nil:
		v.Unreachable = p.Err != nil || !p.Complete
	case len(l.Votes) > 0: // as it was before
		v.Unreachable, v.Was, v.Expires = true, l.Holders[0].ID, l.Holders[0].Expires
	case len(l.Holders) > 0:
		v.Token, v.Expires = l.Holders[0].ID, l.Holders[0].Expires
	}
	return v
}

// tokenHolds are the holds of one token on several servers.
type tokenHolds []Holder

// holdsByToken lists the holds of each token, those on most servers first.
func (c copies) holdsByToken() []tokenHolds {
	of := make(map[string]tokenHolds)
	for _, l := range c {
		if l != nil && len(l.Holders) > 0 {
			h := l.Holders[0]
			of[h.ID] = append(of[h.ID], h)
		}
	}
	return slices.SortedFunc(maps.Values(of), func(a, b tokenHolds) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a[0].ID, b[0].ID))
	})
}

// holder makes one holder of all holds of a token. With a majority, the hold lasts from
// the moment when the majority began until it ends. Without one, it lasts from the last
// vote until all votes have expired.
func (c tokenHolds) holder(quorum int) Holder {
	h := c[0]
	begins, ends := make([]time.Time, len(c)), make([]time.Time, len(c))
	for i, one := range c {
		begins[i], ends[i] = one.Since, one.Expires
		h.Seen = Later(h.Seen, one.Seen)
		h.Depth = max(h.Depth, one.Depth)
	}
	slices.SortFunc(begins, time.Time.Compare)
	slices.SortFunc(ends, func(a, b time.Time) int { return -compareDeadlines(a, b) })
	h.DisconnectedAt = time.Time{} // unknown, because it takes more than one server
	h.Since, h.Expires = begins[min(quorum, len(c))-1], ends[0]
	if !h.Since.IsZero() {
		h.Seen = time.Time{}
	}
	if len(c) >= quorum {
		h.Expires = ends[quorum-1]
	}
	return h
}

// compareDeadlines compares deadlines. Zero, which means never, comes last.
func compareDeadlines(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	default:
		return a.Compare(b)
	}
}
