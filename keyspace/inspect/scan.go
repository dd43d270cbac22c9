// Package inspect finds the locks on Redis servers and watches them. It reads and
// changes nothing. Scanner scans the keyspace of a server once, Watcher follows the
// locks that it has found, and MultiSource merges several servers into one snapshot.
package inspect

import (
	"cmp"
	"context"
	"errors"
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
	o.Meter, o.OwnReads = cmp.Or(o.Meter, new(Meter)), cmp.Or(o.OwnReads, new(OwnReads))
	if o.Progress == nil {
		o.Progress = func(keyspace.Snapshot) {}
	}
	possible := slices.DeleteFunc(slices.Clone(o.Formats), func(f keyspace.Format) bool {
		return f.MaxConfidence != keyspace.No && f.MaxConfidence < o.MinConfidence
	})
	s := &Scanner{rdb: rdb, opts: o, index: newFormatIndex(possible), denied: &deniedCommands{commands: make(map[string]bool)}, answer: &lastAnswer{}}
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
	return meteredConn{scanner: s, answeredBy: make(map[redis.Cmder]string)}
}

// keyID identifies a key of the scanner's database and server.
func (s *Scanner) keyID(key string) keyspace.ID {
	return keyspace.ID{Node: s.node, DB: s.opts.DB, Key: key}
}

// reader returns a reader of the server of the scanner.
func (s *Scanner) reader() reader {
	return reader{conn: s.newConn(), unread: make(map[string]string), atLeast: s.opts.MinConfidence}
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
	denied := r.conn.scanner.denied
	return typ == "string" && denied.has("getrange") && !denied.has("get") || typ == "hash" && denied.has("hscan") && !denied.has("hgetall")
}

// Key is everything that is known about one key.
type Key struct {
	keyspace.Snapshot                  // of this key alone; it has one lock or none
	Entries           []keyspace.Entry // the key as it was read, if it exists, then its companions
	Type              string           // reported by the server; none = the key does not exist
}

// ReadKey reads one key without a scan. A companion of a lock (a queue, a fence, …)
// is not a lock itself. In a cluster the key is read on its node.
func (s *Scanner) ReadKey(ctx context.Context, key string) (Key, error) {
	r := s.reader()
	s.opts.OwnReads.begin(s.keyID(key))
	defer func() { s.opts.OwnReads.end(s.keyID(key), r.conn.now) }()
	result := Key{Snapshot: keyspace.Snapshot{Complete: true, Server: keyspace.Server{Addr: s.node}}}
	var kind *redis.StatusCmd
	var info *redis.StringCmd
	err := r.conn.pipelined(ctx, fmt.Sprintf("read %q", key), func(p redis.Pipeliner) {
		kind, info = p.Type(ctx, key), p.Info(ctx)
	})
	describeServer(&result.Server, info.Val())
	s.timesFields.Store(timesFields(result.Server))
	switch {
	case err == nil && isRedirect(kind.Err()):
		result.Type = "none"
		result.Complete = s.opts.Cluster == nil
		result.Problems = []string{partOfCluster}
		if !result.Complete {
			result.Problems = []string{fmt.Sprintf("%s redirects to another node, which does not answer", s.node)}
		}
	case err == nil:
		result.Type, err = kind.Result()
	}
	c := candidate{name: key, typ: result.Type}
	if err == nil && c.typ == "none" && result.Problems == nil {
		c, err = r.standIn(ctx, key)
	}
	result.Type = c.typ
	var found []candidate
	if err == nil && c.typ != "none" {
		all := []candidate{c}
		if found, err = r.gather(ctx, all); err == nil {
			result.Entries, found = all[0].entries(), r.decode(found)
		}
	}
	result.At, result.Locks, result.Cost = r.conn.now, locksOf(found), r.conn.takeCost()
	n := keyspace.Node{Server: result.Server, Up: true, Ping: r.conn.networkTime, Locks: len(found), Unread: r.unreadKeys().String()}
	result.Nodes, result.Problems = []keyspace.Node{n}, slices.Concat(n.Doubts(), result.Problems, s.denied.problems())
	result.Complete = result.Complete && len(n.Doubts()) == 0
	return result, err
}

// standIn returns the key that stands in for a lock without a key of its own. Its type is
// none if there is no such key, or if this user may not read it; then it is unread.
func (r *reader) standIn(ctx context.Context, lock string) (candidate, error) {
	found := candidate{name: lock, typ: "none"}
	ask := func(p redis.Pipeliner, c candidate) *redis.StatusCmd { return p.Type(ctx, c.name) }
	all := standIns(r.conn.scanner.opts.Formats, lock)
	err := inBatches(ctx, &r.conn, fmt.Sprintf("read %q", lock), all, ask, func(c candidate, typ *redis.StatusCmd) {
		switch {
		case found.typ != "none": // the first one counts
		case typ.Val() == c.typ:
			found = c
		case isKeyDenied(typ.Err()):
			r.unread[c.name] = hiddenKey
		}
	})
	if err != nil {
		return candidate{}, err
	}
	return found, nil
}

// standIns lists the keys that may stand in for a lock.
func standIns(formats []keyspace.Format, lock string) (all []candidate) {
	for _, f := range formats {
		if f.StandIn != nil {
			c := f.StandIn(lock)
			all = append(all, candidate{name: c.Key, typ: c.Type})
		}
	}
	return all
}

// entries returns the key as it was read, if it exists, then its companions.
func (c *candidate) entries() []keyspace.Entry {
	if c.entry == nil {
		return nil
	}
	all := []keyspace.Entry{*c.entry}
	all[0].Related, all[0].Subscribers = nil, nil
	for _, b := range c.companions {
		if e, exists := c.entry.Related[b.Key]; exists && b.Key != c.name {
			all = append(all, e)
		}
	}
	return all
}

// ErrUnreadable means that this user may not read a key.
var ErrUnreadable = errors.New("this user may not read the key")

// ReadLock reads the lock under one key without a scan; nil if there is none. It
// returns an ErrUnreadable if this user may not read it.
func (s *Scanner) ReadLock(ctx context.Context, key string) (*keyspace.Lock, error) {
	r := s.reader()
	s.opts.OwnReads.begin(s.keyID(key))
	defer func() { s.opts.OwnReads.end(s.keyID(key), r.conn.now) }()
	typ, err := s.rdb.Type(ctx, key).Result()
	c := candidate{name: key, typ: typ}
	if err == nil && typ == "none" {
		c, err = r.standIn(ctx, key)
	}
	var found []candidate
	if err == nil && len(r.unread) == 0 {
		found, err = r.detect(ctx, []candidate{c})
	}
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0 && len(r.unread) > 0:
		return nil, ErrUnreadable
	case len(found) == 0:
		return nil, nil
	}
	return found[0].lock, nil
}

// readFieldDeadlines reads the deadlines of the fields of hashes. The libraries whose layout is
// certain set none beside the TTL of the key.
func (r *reader) readFieldDeadlines(ctx context.Context, all []candidate) error {
	all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		return c.typ != "hash" || len(c.entry.Members) == 0 || c.certain && !c.entry.Expires.IsZero()
	})
	ask := func(p redis.Pipeliner, c candidate) *redis.IntSliceCmd {
		var names []string
		for _, m := range c.entry.Members {
			names = append(names, m.Name)
		}
		return p.HPExpireTime(ctx, c.name, names...)
	}
	return inBatches(ctx, &r.conn, "read the deadlines of fields", all, ask, func(c candidate, deadlines *redis.IntSliceCmd) {
		for i, ms := range deadlines.Val() { // -1 = none, -2 = the field is gone
			if ms > 0 {
				c.entry.Members[i].Expires = time.UnixMilli(ms)
			}
		}
	})
}

// timesFields reports whether the fields of hashes can have deadlines on a server.
func timesFields(s keyspace.Server) bool {
	var major, minor int
	_, _ = fmt.Sscanf(s.Version, "%d.%d", &major, &minor)
	return s.Product == "redis" && (major > 7 || major == 7 && minor >= 4) || s.Product == "valkey" && major >= 9
}

// candidate is a key that may be a lock. It is filled in steps: the filter sets name and type,
// read the entry, match the format and the companions, decode the lock. A Watcher keeps in it
// what it knows of the lock.
type candidate struct {
	name, typ  string           // the key to read, and its expected type; the key may stand in for that of the lock
	entry      *keyspace.Entry  // the key as it was read, until it is decoded; nil = it is gone or was not read
	format     *keyspace.Format // the one that matches best
	heard      *keyspace.Format // the one whose subscribers are counted, until it is decoded; nil = none
	companions []keyspace.Companion
	lock       *keyspace.Lock // never changed once it is in a lockSet; snapshots share it
	spread     time.Duration  // the deadline may be later than read by up to this
	firstRead  time.Time      // local clock: the holder was read under this deadline by then
	lastRead   time.Time      // local clock: begin of the last such read
	touched    int64          // server's clock, in ms: no later own read has reset the idle time
	due        int64          // when it is read again, in ms since 1970 on the server's clock; 0 = only when it changes
	place      int            // in the deadlineQueue, if it is due
	quiet      uint32         // checks without a request of another client that no statistics count
	probed     string         // the first piece of the value when idle was asked for, until it is decoded
	idle       uint32         // seconds for which the key had not changed at least before the first read
	oversized  bool           // everything but its elements is read
	absent     bool           // the server knows no such key
	companion  bool           // of another key; most do not exist, so that all are measured before they are read
	light      bool           // its elements were measured together with the types of other keys, and may be read
	small      bool           // the command that reads a whole value may take the place of one that is denied
	certain    bool           // the format is, from the key alone
	partial    bool           // companions could not be read
	shared     bool           // other keys may have the same idle time
}

// none is no lock.
var none = candidate{lock: new(keyspace.Lock)}
