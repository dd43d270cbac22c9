// Package inspect finds the locks on Redis servers and watches them. It reads and
// changes nothing. Scanner scans the keyspace of a server once, Watcher follows the
// locks that it has found, and MultiSource merges several servers into one snapshot.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/order"
)

// Scanner finds the locks of one database of one server. For a cluster, create a
// scanner for each node and merge them with a [MultiSource].
//
// It sends read-only commands: SCAN in small pages, TYPE, and bounded reads of possible
// locks. Reading an expired key makes a master delete it. A Scanner may be used by
// several goroutines.
type Scanner struct {
	rdb    Client
	opts   ScanOptions
	index  *formatIndex
	node   string
	denied *deniedCommands
	answer *lastAnswer
	// timesFields says that the server has deadlines of fields, as far as INFO was read.
	timesFields atomic.Bool
}

// ScanOptions configure a Scanner.
type ScanOptions struct {
	Formats       []keyspace.Format   // in order of preference; see package formats
	DB            int                 // database number in the locks; the client selects the database
	Match         []string            // globs for SCAN; a key that matches any of them is scanned. Empty: all keys
	MinConfidence keyspace.Confidence // 0 = Likely
	Overdue       []Overdue           // what is long for a hold, where locktop shall not judge by itself; the first that matches counts
	Budget        *Budget             // shared by all scanners of a server; nil = no limit
	Rescans       *atomic.Int64       // after each change, watchers scan all keys once without the limit; may be nil
	Cluster       *Cluster            // shared by the scanners of the nodes of a cluster; nil = the server is scanned alone
	Carryover     *Carryover          // for the watchers of servers that a failover may replace; nil = nothing is carried over
	Past          Past                // what an earlier process knew of the locks; nil = nothing
	Meter         *Meter              // adds up what the commands cost; nil = not needed
	Order         *order.Graph        // shared by all scanners of a process; records the orders in which owners acquire locks; nil = nothing is recorded
	OwnReads      *OwnReads           // shared by all scanners of a process; nil = no other one reads the locks of a Watcher
	// RetryTimeout is how long a Scan retries while the server is loading, busy with a
	// script, unreachable, or part of a cluster that is down. It starts again after each
	// successful step. 0: no retries.
	RetryTimeout time.Duration
	// KeepAlike includes possible locks of which there are many alike. It is for the servers of
	// a Redlock, whose votes may confirm them.
	KeepAlike bool
	// Progress is called after each page of a Scan with the snapshot so far; its locks are
	// those of this page. It may be nil.
	Progress func(keyspace.Snapshot)
}

// Past returns a lock that a watcher has found, read at a time of the server, as an earlier
// process saw it, with the same holder and waiter IDs. It is false if that process did not
// see the lock. It must be safe for concurrent use.
type Past func(now keyspace.Lock, at time.Time) (was keyspace.Lock, seen bool)

// Overdue says from when on the holds of some locks are overdue.
type Overdue struct {
	Glob  string // the keys, as [keyspace.MatchGlob] understands it
	After time.Duration
}

// NewScanner returns a scanner that reads through rdb, which remains the caller's. It
// sends nothing yet.
func NewScanner(rdb Client, o ScanOptions) *Scanner {
	o.MinConfidence = cmp.Or(o.MinConfidence, keyspace.Likely)
	if o.Progress == nil {
		o.Progress = func(keyspace.Snapshot) {}
	}
	possible := slices.DeleteFunc(slices.Clone(o.Formats), func(f keyspace.Format) bool {
		return f.MaxConfidence != keyspace.No && f.MaxConfidence < o.MinConfidence
	})
	s := &Scanner{rdb: rdb, opts: o, index: newFormatIndex(possible), denied: &deniedCommands{}, answer: &lastAnswer{}}
	if o, err := optionsOf(rdb); err == nil {
		s.node = o.Addr
	}
	return s
}

// Addr returns the address of the server; "" if its client has more than one server.
func (s *Scanner) Addr() string { return s.node }

// Scan scans the whole keyspace once and returns its locks. A lock that exists during
// the whole scan is found; a lock that appears or vanishes meanwhile may be. The
// snapshot is incomplete if keys were added faster than they could be scanned and the scan
// was given up, or if the server has doubts; see [keyspace.Node.Doubts].
//
// It returns an error if the server cannot be reached, does not answer, or denies SCAN
// or TYPE; the snapshot has what was found before.
func (s *Scanner) Scan(ctx context.Context) (keyspace.Snapshot, error) {
	all, possible := make(lockSet), newPossibleLocks(s.opts.MinConfidence, s.opts.KeepAlike)
	p, err := s.startWithRetry(ctx, possible, time.Now().Add(s.opts.RetryTimeout), isTransient)
	if err != nil {
		return keyspace.Snapshot{}, err
	}
	before := s.nodeSlots(ctx, p)
	var giveUp time.Time // zero after a successful step
	for !p.done() {
		p.concurrentFrom = time.Duration(float64(pageWork) / s.opts.Budget.Share()) // a page per round trip is then within the budget
		if !p.cursors.done() {
			if err := s.opts.Budget.wait(ctx, time.Now()); err != nil { // the last step only verifies the server
				return p.snapshot(all.locks(), false, p.filter.unread), err
			}
		}
		giveUp = cmp.Or(giveUp, time.Now().Add(s.opts.RetryTimeout))
		found, err := p.step(ctx)
		if err != nil {
			again, err := s.resume(ctx, p, err, giveUp)
			if err != nil {
				all.add(possible.takeConfirmed())
				return p.snapshot(all.locks(), false, p.filter.unread), err
			}
			p = again
			continue
		}
		giveUp = time.Time{}
		found = slices.DeleteFunc(found, func(c candidate) bool { return !p.shows(c) })
		all.add(found)
		s.opts.Progress(p.snapshot(locksOf(found), p.complete(), p.filter.unread))
	}
	for _, key := range all.possibleIn(possible.alike.takeFresh()) {
		delete(all, key)
	}
	all.add(possible.takeConfirmed())
	moves := s.nodeSlots(ctx, p).movesSince(before)
	snap := p.snapshot(all.locks(), p.complete(), p.filter.unread)
	snap.Moves = moves
	return snap, nil
}

// nodeSlots returns the slots of a cluster node and those being moved. Without the
// permission there are none.
func (s *Scanner) nodeSlots(ctx context.Context, p *scanPass) *slots {
	if s.opts.Cluster == nil {
		return &slots{}
	}
	pipe := s.rdb.Pipeline()
	nodes := pipe.ClusterNodes(ctx)
	_, _ = p.conn.exec(ctx, pipe) // denied commands are recorded
	p.cost.Add(p.conn.takeCost())
	return slotsOf(nodes.Val())
}

// newConn returns a connection to the server of the scanner.
func (s *Scanner) newConn() meteredConn {
	return meteredConn{rdb: s.rdb, meter: s.opts.Meter, denied: s.denied, answer: s.answer, cluster: s.opts.Cluster, addr: s.node, answeredBy: make(map[redis.Cmder]string)}
}

// keyID identifies a key of the scanner's database and server.
func (s *Scanner) keyID(key string) keyspace.ID {
	return keyspace.ID{Node: s.node, DB: s.opts.DB, Key: key}
}

// selects reports whether a key matches the globs.
func (s *Scanner) selects(key string) bool {
	return len(s.opts.Match) == 0 || slices.ContainsFunc(s.opts.Match, func(glob string) bool { return keyspace.MatchGlob(glob, key) })
}

// reader returns a reader with the options of the scanner.
func (s *Scanner) reader() reader {
	return reader{
		conn:    s.newConn(),
		unread:  make(map[string]string),
		formats: s.opts.Formats,
		atLeast: s.opts.MinConfidence,
		node:    s.node,
		db:      s.opts.DB,
		overdue: s.opts.Overdue, timesFields: &s.timesFields,
	}
}

// locksOf returns the locks of keys.
func locksOf(all []candidate) []*keyspace.Lock {
	locks := make([]*keyspace.Lock, len(all))
	for i := range all {
		locks[i] = all[i].lock
	}
	return locks
}

// unread counts the keys that may be locks, or belong to one, and could not be read, by the reason. The text of it is
// the only source of what outputs say of such keys: see [keyspace.Node.Doubts].
type unread map[string]int

// Reasons that are not those of one type of keys.
const (
	hiddenKey = "may not be read by this user"                                // with any command
	movingKey = "could not be read while moving between nodes of the cluster" // no node returned it
)

// add adds other counts.
func (u unread) add(other unread) {
	for why, n := range other {
		u[why] += n
	}
}

// String returns one clause for each reason; "" = all keys were read.
func (u unread) String() string {
	var all []string
	for _, why := range slices.Sorted(maps.Keys(u)) {
		if u[why] > 0 {
			all = append(all, humanize.Plural(u[why], "key")+" "+why)
		}
	}
	return strings.Join(all, ", and ")
}

// unreadKeys counts the keys of the last call that could not be read.
func (r *reader) unreadKeys() unread {
	all := make(unread)
	for _, why := range r.unread {
		all[why]++
	}
	return all
}

// whyUnread returns the reason why the key could not be read.
func (q keyRead) whyUnread() string {
	cmd := redis.Cmder(q.expiry)
	if q.size != nil && isCommandDenied(q.size.Err()) {
		cmd = q.size
	}
	if q.value != nil && isCommandDenied(q.value.Err()) {
		cmd = q.value
	}
	if !isCommandDenied(cmd.Err()) {
		return hiddenKey
	}
	return fmt.Sprintf("of type %s cannot be read, because %s", q.typ, deniedBecause(isUnknownCommand(cmd.Err()), commandName(cmd)))
}

// smallSizes are the sizes up to which GET and HGETALL may take the place of a command that reads a part of a value.
var smallSizes = map[string]int64{"string": valueBytes, "hash": maxElements}

// substituted reports whether GET or HGETALL must read the keys of a type.
func (r *reader) substituted(typ string) bool {
	denied := r.conn.denied
	return typ == "string" && denied.has("getrange") && !denied.has("get") || typ == "hash" && denied.has("hscan") && !denied.has("hgetall")
}
