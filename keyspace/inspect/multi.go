package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"locktop/keyspace"
)

// Source takes snapshots of one database of one server. A BackgroundWatcher and a
// Scanner are sources.
type Source interface {
	Snapshot(context.Context) (keyspace.Snapshot, error)
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
	base   time.Duration            // of clocks: that of the times of last
	steps  map[string]bool          // servers whose clock has been set since last
	last   keyspace.Snapshot
}

// MultiOptions configure a MultiSource. The sources of a Redlock should report what is
// Possible: the same value under one key on several servers makes it Likely.
type MultiOptions = keyspace.MergeOptions

// NewMultiSource returns a MultiSource. It sends nothing yet.
func NewMultiSource(list SourceLister, o MultiOptions) *MultiSource {
	return &MultiSource{list: list, opts: o, clocks: make(map[string]time.Duration), steps: make(map[string]bool)}
}

// Snapshot takes snapshots of all sources at the same time and merges them. It fails only if no
// source answers; the snapshot then has what was read before the errors. A master of a
// cluster that may have received keys meanwhile is read again, because those keys may not
// have been seen on their old master.
func (m *MultiSource) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	sources, err := m.list(ctx)
	if err != nil {
		return keyspace.Snapshot{}, err
	}
	if len(sources) == 0 {
		return keyspace.Snapshot{}, fmt.Errorf("there is no server to read")
	}
	parts := make([]keyspace.Part, len(sources))
	all := make([]int, len(sources))
	for i := range all {
		all[i] = i
	}
	m.readParts(ctx, sources, parts, all)
	m.repeatMoved(ctx, sources, parts)
	if err := noAnswer(parts); err != nil {
		return keyspace.Merge(parts, m.opts), err
	}
	began, opts := time.Now(), m.opts
	opts.Before = m.last.Locks
	s := keyspace.Merge(parts, opts)
	if m.opts.Redlock {
		s = keyspace.CarryOver(m.last, s)
		s.Events = slices.DeleteFunc(keyspace.Diff(m.last, s), func(e keyspace.Event) bool { // a step of the clock of a server moves its deadlines
			return e.Kind == keyspace.Renewed && slices.ContainsFunc(e.Lock.Votes, func(v keyspace.Vote) bool { return m.steps[v.Node] })
		})
	}
	clear(m.steps)
	s.Cost.OwnTime += time.Since(began)
	s.Notices = append(s.Notices, moved(m.last.Nodes, s.Nodes)...)
	m.last = s
	return s, nil
}

// moved returns a notice if the list of servers has changed.
func moved(before, now []keyspace.Node) []keyspace.Notice {
	was, is := addrs(before), addrs(now)
	came, left := without(is, was), without(was, is)
	if len(was) == 0 || len(came)+len(left) == 0 {
		return nil
	}
	text := "locktop watches " + strings.Join(came, ", ") + " now, too"
	switch {
	case len(left) > 0 && len(came) > 0:
		text = fmt.Sprintf("%s has taken the place of %s", strings.Join(came, ", "), strings.Join(left, ", "))
	case len(left) > 0:
		text = "locktop does not watch " + strings.Join(left, ", ") + " any more"
	}
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerFailover, Text: text}}
}

func addrs(nodes []keyspace.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Addr)
	}
	return all
}

// without returns the elements of all that are not in others.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

// readParts takes the snapshots of the sources with these indexes, and puts their times
// on the clock of the first source that has answered.
func (m *MultiSource) readParts(ctx context.Context, sources []NamedSource, parts []keyspace.Part, which []int) {
	ahead := make([]time.Duration, len(sources)) // server clocks minus the local clock
	var all sync.WaitGroup
	for _, i := range which {
		all.Go(func() {
			snap, err := sources[i].Source.Snapshot(ctx)
			parts[i] = keyspace.Part{Snapshot: snap, Addr: sources[i].Addr, Err: err}
			ahead[i] = snap.ClockAhead(time.Now())
		})
	}
	all.Wait()
	m.setClocks(parts, ahead, which)
}

// repeatMoved reads the nodes again to which keys moved during the read, and adds the
// result. If a slot moved in and out again, locks may have been missed.
func (m *MultiSource) repeatMoved(ctx context.Context, sources []NamedSource, parts []keyspace.Part) {
	addLateMoves(parts)
	var moved []int
	for i, p := range parts {
		if p.Err == nil && p.Moves != nil && slices.Contains(p.Moves.Came[:], true) {
			moved = append(moved, i)
		}
	}
	if len(moved) == 0 {
		return
	}
	again := slices.Clone(parts)
	m.readParts(ctx, sources, again, moved)
	for _, i := range moved {
		p := again[i]
		first := parts[i].Snapshot
		p.Locks = keyspace.UniqueLocks(slices.Concat(p.Locks, first.Locks))
		p.Cost.Add(first.Cost)
		if passedThrough(first.Moves, p.Moves) {
			p.Complete = false
			p.Problems = append(slices.Clip(p.Problems), fmt.Sprintf("keys moved to %s and away again during the scan, and may have been missed", p.Addr))
		}
		if !p.Seen() {
			p.Snapshot = first
		}
		parts[i] = p
	}
}

// addLateMoves adds each slot that left a node during its read, and came to none during the read
// of that one, to those that may have come to the other nodes: the read of its new node had ended
// before the move.
func addLateMoves(parts []keyspace.Part) {
	var all []*keyspace.SlotMoves
	for i := range parts {
		if m := parts[i].Moves; m != nil { // it was scanned
			all = append(all, m)
		}
	}
	for slot := range keyspace.SlotCount {
		went := slices.ContainsFunc(all, func(m *keyspace.SlotMoves) bool { return m.Went[slot] })
		if !went || slices.ContainsFunc(all, func(m *keyspace.SlotMoves) bool { return m.Came[slot] }) {
			continue
		}
		for _, m := range all {
			m.Came[slot] = !m.Went[slot]
		}
	}
}

// noDifference is how much two clocks may differ and count as one.
const noDifference = 100 * time.Millisecond

// setClocks measures the differences of the server clocks and shifts all times to the
// first clock, also those of the last snapshot. A watcher follows the clock of its server.
// The time of a scan is late, never early: the largest difference is the best, unless the clock was set back.
func (m *MultiSource) setClocks(parts []keyspace.Part, measured []time.Duration, which []int) {
	for _, i := range which {
		p := parts[i]
		if p.Err != nil {
			continue
		}
		ahead, known := m.clocks[p.Addr]
		watched := !p.AnsweredAt().IsZero()
		if now := measured[i]; !known || now > ahead || watched || now < ahead-5*time.Second {
			m.clocks[p.Addr] = now
			m.steps[p.Addr] = known && (now-ahead).Abs() > noDifference
		}
	}
	first := slices.IndexFunc(parts, func(p keyspace.Part) bool { return p.Err == nil })
	if first < 0 {
		return
	}
	base := m.clocks[parts[first].Addr]
	if moved := base - m.base; moved.Abs() > noDifference {
		m.last, m.base = m.last.Shifted(moved), base
	}
	for _, i := range which {
		if parts[i].Err != nil {
			continue
		}
		if ahead := m.clocks[parts[i].Addr] - m.base; ahead.Abs() > noDifference {
			parts[i].Snapshot = parts[i].Shifted(-ahead)
		}
	}
}

// noAnswer returns an error with the error of each source if no source answered.
func noAnswer(parts []keyspace.Part) error {
	var all ServerErrors
	for _, p := range parts {
		if p.Err == nil {
			return nil
		}
		all = append(all, fmt.Errorf("%s: %w", p.Addr, p.Err))
	}
	if len(parts) == 1 {
		return parts[0].Err
	}
	return all
}

// ServerErrors has the errors of several servers.
type ServerErrors []error

// Error names all servers.
func (s ServerErrors) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors of the servers.
func (s ServerErrors) Unwrap() []error { return s }
