package keyspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"locktop/humanize"
)

// Source takes snapshots of one database of one server. A BackgroundWatcher and a
// Scanner are sources.
type Source interface {
	Snapshot(context.Context) (Snapshot, error)
}

// NamedSource is a source of a MultiSource, with the address of its server.
type NamedSource struct {
	Addr   string // host:port
	Source Source
}

// SourceLister lists the sources of a MultiSource. It is called for every snapshot; the
// result may change when servers are added, removed or replaced.
type SourceLister func(context.Context) ([]NamedSource, error)

// MultiSource merges the snapshots of several servers, or of several databases. What a
// server does not report is missing from the snapshot and mentioned in its Nodes and
// Problems.
//
// All times of the snapshot are on the clock of the first server that answers. A
// MultiSource is for one caller at a time.
type MultiSource struct {
	list   SourceLister
	opts   MultiOptions
	clocks map[string]time.Duration // server clocks minus the local clock
	late   []bool                   // sources that exceeded the timeout
	last   Snapshot
}

// MultiOptions configure a MultiSource.
type MultiOptions struct {
	Mode    string // mode of the snapshot's Server, if not the mode of the servers; in a cluster a key exists once
	Redlock bool   // the sources are the independent servers of a Redlock
	// MinConfidence is the required confidence of a merged Redlock. The sources should
	// report what is Possible: the same value under one key on several servers makes it
	// Likely.
	MinConfidence Confidence
	// Timeout limits how long one of several sources may take. A source that exceeds it is
	// missing from the snapshot and not waited for until it answers. 0: no limit, as a
	// single scan needs.
	Timeout time.Duration
}

// NewMultiSource returns a MultiSource. It sends nothing yet.
func NewMultiSource(r SourceLister, o MultiOptions) *MultiSource {
	return &MultiSource{list: r, opts: o, clocks: make(map[string]time.Duration)}
}

// Snapshot takes snapshots of all sources at once and merges them. It fails only if no
// source answers; the snapshot then has what was read before the errors. A master of a
// cluster that received keys meanwhile is read again, because those keys may not have
// been seen on their old master.
func (m *MultiSource) Snapshot(ctx context.Context) (Snapshot, error) {
	sources, err := m.list(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	if len(sources) == 0 {
		return Snapshot{}, fmt.Errorf("there is no server to ask")
	}
	parts := m.snapshots(ctx, sources)
	m.repeatMoved(ctx, sources, parts)
	if err := noAnswer(parts); err != nil {
		return mergeSnapshots(parts, m.opts), err
	}
	s := mergeSnapshots(parts, m.opts)
	if m.opts.Redlock {
		s = carryOverAll(m.last, s)
		s.Events = Diff(m.last, s)
	}
	m.last = s
	return s, nil
}

// snapshots takes a snapshot of each source and puts their times on one clock.
func (m *MultiSource) snapshots(ctx context.Context, sources []NamedSource) []memberSnapshot {
	parts := make([]memberSnapshot, len(sources))
	if len(m.late) != len(sources) {
		m.late = make([]bool, len(sources))
	}
	var all sync.WaitGroup
	for i, s := range sources {
		all.Go(func() {
			within, cancel := m.memberContext(ctx, i)
			defer cancel()
			snap, err := s.Source.Snapshot(within)
			m.late[i] = err != nil && within.Err() != nil
			if m.late[i] && ctx.Err() == nil {
				err = fmt.Errorf("no answer within %s", humanize.Setting(m.opts.Timeout))
			}
			parts[i] = memberSnapshot{Snapshot: snap, addr: s.Addr, err: err, heard: time.Now()}
		})
	}
	all.Wait()
	m.setClocks(parts)
	return parts
}

// lateWait is the timeout of a source that exceeded the normal timeout last time.
const lateWait = 5 * time.Millisecond

// memberContext limits the time of one of several sources.
func (m *MultiSource) memberContext(ctx context.Context, station int) (context.Context, context.CancelFunc) {
	switch {
	case m.opts.Timeout == 0 || len(m.late) < 2:
		return ctx, func() {}
	case m.late[station]:
		return context.WithTimeout(ctx, lateWait)
	default:
		return context.WithTimeout(ctx, m.opts.Timeout)
	}
}

// repeatMoved reads the nodes again to which keys moved during the read, and adds the
// result. If a slot moved in and out again, locks may have been missed.
func (m *MultiSource) repeatMoved(ctx context.Context, sources []NamedSource, parts []memberSnapshot) {
	var which []int
	var some []NamedSource
	for i, p := range parts {
		if p.err == nil && p.moves.anyIn() {
			which, some = append(which, i), append(some, sources[i])
		}
	}
	if len(some) == 0 {
		return
	}
	for i, p := range m.snapshots(ctx, some) {
		first := parts[which[i]].Snapshot
		p.Locks = uniqueLocks(slices.Concat(p.Locks, first.Locks))
		p.Cost.add(first.Cost)
		if passedThrough(first.moves, p.moves) {
			p.Complete = false
			p.Problems = appendNew(p.Problems, fmt.Sprintf("keys were moved to %s and away again meanwhile, and may have been missed", p.addr))
		}
		if !p.seen() {
			p.Snapshot = first
		}
		parts[which[i]] = p
	}
}

// sameClock is the clock difference below which two clocks count as one. It is smaller
// than the uncertainty of a reply.
const sameClock = 100 * time.Millisecond

// setClocks measures the differences of the server clocks and shifts all times to the
// first clock. A reported time is always late, never early: the largest difference is
// the best, unless the clock was set back.
func (m *MultiSource) setClocks(parts []memberSnapshot) {
	for _, p := range parts {
		if p.err != nil {
			continue
		}
		ahead, known := m.clocks[p.addr]
		if now := p.At.Sub(p.heard); !known || now > ahead || now < ahead-5*time.Second {
			m.clocks[p.addr] = now
		}
	}
	first := slices.IndexFunc(parts, func(p memberSnapshot) bool { return p.err == nil })
	for i := range parts {
		if parts[i].err != nil {
			continue
		}
		if ahead := m.clocks[parts[i].addr] - m.clocks[parts[first].addr]; ahead.Abs() > sameClock {
			parts[i].Snapshot = parts[i].shifted(-ahead)
		}
	}
}

// memberSnapshot is the snapshot of one source.
type memberSnapshot struct {
	Snapshot
	addr  string
	err   error
	heard time.Time // on the local clock
}

// noAnswer returns an error with the error of each source if no source answered.
func noAnswer(parts []memberSnapshot) error {
	var all NoAnswerError
	for _, p := range parts {
		if p.err == nil {
			return nil
		}
		all = append(all, fmt.Errorf("%s: %w", p.addr, p.err))
	}
	if len(parts) == 1 {
		return parts[0].err
	}
	return all
}

// NoAnswerError has the errors of several servers, none of which answered.
type NoAnswerError []error

// Error names all servers.
func (s NoAnswerError) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors of the servers.
func (s NoAnswerError) Unwrap() []error { return s }

// mergeSnapshots merges the snapshots of all sources.
func mergeSnapshots(parts []memberSnapshot, o MultiOptions) Snapshot {
	var s Snapshot
	s.Complete = true
	for _, p := range parts {
		s.addNodesOf(p)
		if p.seen() {
			s.addSnapshot(p.Snapshot)
		}
	}
	s.Locks = allLocks(parts)
	if o.Mode == "cluster" {
		s.dropMovedTwice(parts)
	}
	if o.Redlock {
		s.Locks, s.Events = mergeRedlock(parts, o.MinConfidence), nil
		slices.SortFunc(s.Locks, compareLocks)
	}
	if o.Mode != "" {
		s.Server.Mode = o.Mode
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	slices.SortFunc(s.Nodes, func(a, b Node) int { return strings.Compare(a.Addr, b.Addr) })
	return s
}

// allLocks returns the locks of all sources, in order. With one source it returns the
// same slice, so that [DeltaOf] detects at once that nothing has changed.
func allLocks(parts []memberSnapshot) []Lock {
	if len(parts) == 1 {
		return parts[0].Locks
	}
	var all []Lock
	for _, p := range parts {
		if p.seen() {
			all = append(all, p.Locks...)
		}
	}
	slices.SortFunc(all, compareLocks)
	return all
}

// seen reports whether there is a snapshot, even of a part of the server.
func (p memberSnapshot) seen() bool { return p.err == nil || !p.At.IsZero() }

// dropMovedTwice removes one of two locks with the same key that two cluster nodes
// reported: the lock moved between the reads.
func (s *Snapshot) dropMovedTwice(parts []memberSnapshot) {
	if unique := uniqueLocks(s.Locks); len(unique) == len(s.Locks) {
		return
	}
	latest := slices.Clone(parts)
	slices.SortStableFunc(latest, func(a, b memberSnapshot) int { return b.At.Compare(a.At) })
	s.Locks = nil
	for _, p := range latest {
		if p.seen() {
			s.Locks = append(s.Locks, p.Locks...)
		}
	}
	s.Locks = uniqueLocks(s.Locks)
	slices.SortFunc(s.Locks, compareLocks)
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

// uniqueLocks returns the locks without those whose key an earlier lock has.
func uniqueLocks(all []Lock) []Lock {
	type place struct {
		db  int
		key string
	}
	known := make(map[place]bool, len(all))
	return slices.DeleteFunc(slices.Clone(all), func(l Lock) bool {
		at := place{l.DB, l.Key}
		told := known[at]
		known[at] = true
		return told
	})
}

func compareLocks(a, b Lock) int { return a.ID().compare(b.ID()) }

// addNodesOf adds the nodes of a source.
func (s *Snapshot) addNodesOf(p memberSnapshot) {
	if p.err != nil {
		s.Complete = false
		known := Node{Trouble: p.err.Error()}
		how := "is missing"
		if p.seen() {
			known.Server, known.Keys, known.Locks = p.Server, p.Cost.Keys, len(p.Locks)
			how = fmt.Sprintf("is seen only in part, its keys are %d", p.Cost.Keys)
		}
		known.Addr = p.addr
		s.Problems = appendNew(s.Problems, fmt.Sprintf("%s %s: %v", p.addr, how, p.err))
		s.addNode(known)
		return
	}
	for _, n := range p.Nodes {
		n.Addr = p.addr
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
	known.Walked = known.Walked && n.Walked
	known.Keys += n.Keys
	known.Locks += n.Locks
	if !n.Up {
		known.Up, known.Trouble = false, n.Trouble
	}
}

// addSnapshot adds everything but the locks and nodes of a source.
func (s *Snapshot) addSnapshot(one Snapshot) {
	if s.Server.Version == "" {
		s.Server = one.Server
	}
	if one.At.After(s.At) {
		s.At = one.At
	}
	s.Events = append(s.Events, one.Events...)
	s.Notices = append(s.Notices, one.Notices...)
	s.Complete = s.Complete && one.Complete
	s.Problems = appendNew(s.Problems, one.Problems...)
	s.Follow = s.Follow.and(one.Follow)
	s.Cost.add(one.Cost)
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

// shifted returns the snapshot with all server times shifted by d.
func (s Snapshot) shifted(d time.Duration) Snapshot {
	s.At = s.At.Add(d)
	s.Locks = slices.Clone(s.Locks)
	for i := range s.Locks {
		s.Locks[i] = s.Locks[i].shifted(d)
	}
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		e := &s.Events[i]
		e.At, e.Lock, e.Holder, e.Waiter = e.At.Add(d), e.Lock.shifted(d), e.Holder.shifted(d), e.Waiter.shifted(d)
	}
	return s
}

func (l Lock) shifted(d time.Duration) Lock {
	l.Expires, l.Renewed, l.FreeFrom = shift(l.Expires, d), shift(l.Renewed, d), shift(l.FreeFrom, d)
	l.Holders, l.Waiters = slices.Clone(l.Holders), slices.Clone(l.Waiters)
	for i := range l.Holders {
		l.Holders[i] = l.Holders[i].shifted(d)
	}
	for i := range l.Waiters {
		l.Waiters[i] = l.Waiters[i].shifted(d)
	}
	return l
}

func (h Holder) shifted(d time.Duration) Holder {
	h.Since, h.Expires, h.Left = shift(h.Since, d), shift(h.Expires, d), shift(h.Left, d)
	return h
}

func (w Waiter) shifted(d time.Duration) Waiter {
	w.Since, w.Expires = shift(w.Since, d), shift(w.Expires, d)
	return w
}

// shift shifts a time unless it is zero.
func shift(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}
