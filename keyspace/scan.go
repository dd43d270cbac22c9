package keyspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Scanner finds the locks of one database of one server. A cluster is not
// walked: give it a client of one node, and join its pictures with a [MultiSource].
//
// It sends read-only commands: SCAN in small pages, TYPE, and bounded reads of
// what might be a lock. Still, reading a key that has expired makes a master
// delete it. A Scanner may be used from several goroutines.
type Scanner struct {
	rdb    redis.UniversalClient
	opts   ScanOptions
	index  *formatIndex
	node   string
	denied *deniedCommands
}

// ScanOptions say what to look for, and how hard.
type ScanOptions struct {
	Formats       []Format   // in order of preference; see package formats
	DB            int        // the number that the locks bear; the client chooses the database
	Match         []string   // globs as SCAN takes them; keys that match any are looked at. None: all keys
	MinConfidence Confidence // 0 = Likely
	Overdue       []Overdue  // what is long for a hold, where locktop shall not judge by itself; the first that matches counts
	Budget        *Budget    // shared by all that look at the same server; nil = as fast as it goes
	Cluster       *Cluster   // shared by the scanners of the nodes of a cluster; nil = the server is looked at alone
	// RetryTimeout is how long a Scan waits for a server that is loading, busy with
	// a script, lost on the way, or part of a cluster that is down, before it gives
	// up. It counts anew after each step that goes well. 0: it does not wait.
	RetryTimeout time.Duration
	// Progress is called after each page of a Scan with the picture so far;
	// its locks are those that this page brought. It may be nil.
	Progress func(Snapshot)
}

// NewScanner returns a scanner that reads through rdb, which stays the
// caller's. Nothing is sent yet.
func NewScanner(rdb redis.UniversalClient, o ScanOptions) *Scanner {
	if o.MinConfidence == No {
		o.MinConfidence = Likely
	}
	if o.Progress == nil {
		o.Progress = func(Snapshot) {}
	}
	s := &Scanner{rdb: rdb, opts: o, index: newFormatIndex(possibleFormats(o.MinConfidence, o.Formats)), denied: &deniedCommands{}}
	if c, ok := rdb.(interface{ Options() *redis.Options }); ok {
		s.node = c.Options().Addr
	}
	return s
}

// possibleFormats returns the formats that may be so sure of a key.
func possibleFormats(sure Confidence, formats []Format) []Format {
	return slices.DeleteFunc(slices.Clone(formats), func(f Format) bool { return f.MaxConfidence != No && f.MaxConfidence < sure })
}

// Scan walks over the whole keyspace once and returns the locks in it. What is
// there from beginning to end is found; what comes or goes meanwhile may be.
// The snapshot is incomplete only if keys were added faster than they could be
// walked over, and the walk was given up.
//
// It returns an error if the server cannot be reached, does not answer, or
// refuses SCAN or TYPE; what it has seen until then is in the snapshot. Keys that
// may not be read are passed over; what is missed that way is said in Problems.
func (s *Scanner) Scan(ctx context.Context) (Snapshot, error) {
	p, err := s.startWithRetry(ctx, time.Now().Add(s.opts.RetryTimeout), isTransient)
	if err != nil {
		return Snapshot{}, err
	}
	before := s.nodeSlots(ctx, p)
	all, weak := make(lockSet), newCandidates(s.opts.MinConfidence)
	var giveUp time.Time // zero after a step that went well
	for !p.done() {
		p.concurrentFrom = concurrencyThreshold(s.opts.Budget)
		p.setThreshold(weak.atLeast(p.cursors.visited))
		if err := s.opts.Budget.wait(ctx, time.Now()); err != nil {
			return s.snapshot(p, all.locks(), false), err
		}
		if giveUp.IsZero() {
			giveUp = time.Now().Add(s.opts.RetryTimeout)
		}
		locks, err := s.step(ctx, p)
		if err != nil {
			again, err := s.resume(ctx, p, err, giveUp)
			if err != nil {
				all.add(weak.takeConfirmed())
				return s.snapshot(p, all.locks(), false), err
			}
			p = again
			continue
		}
		giveUp = time.Time{}
		locks = weak.split(locks, p.cursors.visited, p.now)
		all.add(locks)
		s.opts.Progress(s.snapshot(p, locksOf(locks), p.complete()))
	}
	all.add(weak.takeConfirmed())
	moves := s.nodeSlots(ctx, p).movesSince(before)
	snap := s.snapshot(p, all.locks(), p.complete() && p.filter.unlocated == 0)
	snap.moves = moves
	return snap, nil
}

// nodeSlots asks a node of a cluster which slots it has, and which are on their way. A node
// that does not say has none.
func (s *Scanner) nodeSlots(ctx context.Context, p *scanPass) *slots {
	if s.opts.Cluster == nil {
		return &slots{}
	}
	pipe := s.rdb.Pipeline()
	nodes := pipe.ClusterNodes(ctx)
	_, _ = p.conn.exec(ctx, pipe) // what it refuses is noted
	p.cost.add(p.conn.takeCost())
	return slotsOf(nodes.Val())
}

// step takes a step of a pass, and books it with the budget.
func (s *Scanner) step(ctx context.Context, p *scanPass) ([]detection, error) {
	before := p.cost.Busy
	locks, err := p.step(ctx)
	s.opts.Budget.charge(p.cost.Busy-before, p.networkTime, time.Now())
	return locks, err
}

// snapshot is the picture that a pass has got so far.
func (s *Scanner) snapshot(p *scanPass, locks []Lock, complete bool) Snapshot {
	return Snapshot{
		At: p.now, Locks: locks, Complete: complete, Cost: p.cost, Server: p.server,
		Nodes:    []Node{{Server: p.server, Up: true, Ping: p.networkTime, Keys: p.cost.Keys, Locks: len(locks), Walked: complete}},
		Problems: s.problems(p),
	}
}

// problems says what this user may not see.
func (s *Scanner) problems(p *scanPass) []string {
	var all []string
	if p.server.Alone {
		all = append(all, partOfCluster)
	}
	if slices.ContainsFunc(p.cursors.all, func(c cursor) bool { return c.gaveUp }) {
		all = append(all, "keys are added faster than they can be looked at, and the look was given up")
	}
	if n := p.filter.unlocated; n > 0 {
		all = append(all, fmt.Sprintf("%d keys that are on their way between nodes of the cluster could not be read", n))
	}
	forbidden, unknown := s.denied.missing()
	if len(forbidden) > 0 {
		all = append(all, "this user may not send "+strings.Join(forbidden, ", "))
	}
	if len(unknown) > 0 {
		all = append(all, "the server does not know "+strings.Join(unknown, ", "))
	}
	if n := p.filter.unreadable; n > 0 {
		all = append(all, fmt.Sprintf("%d of the keys may not be read by this user", n))
	}
	return all
}

// partOfCluster says that the other nodes are not looked at.
const partOfCluster = "this server is part of a cluster: add --cluster to see all of it"

// newConn returns a link to the server of the scanner.
func (s *Scanner) newConn() meteredConn {
	return meteredConn{rdb: s.rdb, denied: s.denied, cluster: s.opts.Cluster, addr: s.node, answeredBy: make(map[redis.Cmder]string)}
}

// selects reports whether a key is among those to be looked at.
func (s *Scanner) selects(key string) bool {
	return len(s.opts.Match) == 0 || slices.ContainsFunc(s.opts.Match, func(glob string) bool { return MatchGlob(glob, key) })
}

// reader returns a reader of what the scanner is looking for.
func (s *Scanner) reader() reader {
	return reader{
		meteredConn: s.newConn(),
		formats:     s.opts.Formats,
		atLeast:     s.opts.MinConfidence,
		node:        s.node,
		db:          s.opts.DB,
		overdue:     s.opts.Overdue,
	}
}
