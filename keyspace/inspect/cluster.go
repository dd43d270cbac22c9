package inspect

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// Cluster is the state that the scanners of the masters of one Redis Cluster share: the
// clients of all nodes, and which watcher has which lock. With it a scanner reads keys
// on the node that has them (ASK, MOVED), and a lock that moves between masters remains
// one lock. It is safe for concurrent use.
type Cluster struct {
	node func(addr string) (Client, error)

	changing [64]sync.Mutex // by a hash of the key: a lock is compared and recorded by one watcher at a time

	mu            sync.Mutex
	failedAt      map[string]time.Time // nodes that did not answer, and when
	owners        map[string]owner     // by key
	movedAway     map[*Watcher][]string
	ended         map[string]end // the latest ends
	prefixes      prefixes       // of the locks of all watchers
	prefixVersion int            // number of changes of prefixes
}

// owner is the watcher that has a lock, with the last known state of the lock.
type owner struct {
	watcher *Watcher
	last    candidate
}

// end is the end of a lock: its last known state, and when the read ended that no longer
// found it.
type end struct {
	last candidate
	at   time.Time
}

// NewCluster returns a cluster. node returns a client for an address as the nodes
// report it. The clients remain the caller's.
func NewCluster(node func(addr string) (Client, error)) *Cluster {
	return &Cluster{
		node: node, failedAt: make(map[string]time.Time),
		owners: make(map[string]owner), movedAway: make(map[*Watcher][]string), ended: make(map[string]end), prefixes: make(prefixes),
	}
}

// client returns the client of a node, nil if there is none or the node has just
// failed.
func (c *Cluster) client(addr string) Client {
	c.mu.Lock()
	at, failed := c.failedAt[addr]
	c.mu.Unlock()
	if failed && time.Since(at) < time.Second { // it did not answer a redirected command
		return nil
	}
	rdb, err := c.node(addr)
	if err != nil {
		return nil
	}
	return rdb
}

// hop is the next destination of a command.
type hop struct {
	addr   string
	asking bool // with ASKING before it
}

// nextHop returns the destination in an ASK or MOVED error. An address without a host
// is on the host of the node that returned it.
func nextHop(err error, from string) (hop, bool) {
	if !isRedirect(err) {
		return hop{}, false
	}
	words := strings.Fields(err.Error())
	if len(words) < 3 {
		return hop{}, false
	}
	to := words[2]
	if strings.HasPrefix(to, ":") {
		host, _, _ := net.SplitHostPort(from)
		to = net.JoinHostPort(host, to[1:])
	}
	return hop{to, words[0] == "ASK"}, true
}

// isRedirect reports whether a node says that a key is on another node.
func isRedirect(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "MOVED"))
}

// followRedirects sends the commands that were answered with ASK or MOVED to the other
// nodes until they are answered. Commands that no node answers keep their errors.
func (c *meteredConn) followRedirects(ctx context.Context, cmds []redis.Cmder) {
	clear(c.answeredBy)
	if c.scanner.opts.Cluster == nil { // keys on other nodes are not read
		return
	}
	for n := 1; n <= 4; n++ { // a slot that is being moved takes two redirects: MOVED by the new master, ASK by the old one
		away := make(map[hop][]redis.Cmder)
		for _, cmd := range cmds {
			if to, ok := nextHop(cmd.Err(), cmp.Or(c.answeredBy[cmd], c.scanner.node)); ok {
				// Two nodes that redirect to each other are about to hand over the slot: the one that
				// has the key answers after ASKING.
				to.asking = to.asking || n > 2
				away[to] = append(away[to], cmd)
			}
		}
		if len(away) == 0 {
			return
		}
		for to, some := range away {
			c.sendTo(ctx, to, some)
		}
	}
}

// sendTo sends commands to another node.
func (c *meteredConn) sendTo(ctx context.Context, to hop, cmds []redis.Cmder) {
	if to.asking && c.scanner.denied.has(asking) {
		return
	}
	cluster := c.scanner.opts.Cluster
	rdb := cluster.client(to.addr)
	if rdb == nil {
		return
	}
	p := rdb.Pipeline()
	leave := redis.NewStatusCmd(ctx, asking)
	was := make([]error, len(cmds))
	for i, cmd := range cmds {
		if to.asking {
			leave = redis.NewStatusCmd(ctx, asking)
			_ = p.Process(ctx, leave) // it only queues, as the next call
		}
		was[i] = cmd.Err()
		_ = p.Process(ctx, cmd)
	}
	begin := time.Now()
	sent, err := p.Exec(ctx)
	c.cost.WaitTime += time.Since(begin)
	c.cost.Commands += int64(len(sent))
	if isCommandDenied(leave.Err()) {
		c.scanner.denied.record(asking, leave.Err())
	}
	if isConnLost(err) {
		cluster.mu.Lock()
		cluster.failedAt[to.addr] = time.Now()
		cluster.mu.Unlock()
	}
	for i, cmd := range cmds {
		if err != nil && (isConnLost(cmd.Err()) || ctx.Err() != nil) {
			cmd.SetErr(was[i])
			continue
		}
		c.answeredBy[cmd] = to.addr
	}
}

// asking is the command that lets the next command read a key of a slot that is being
// moved to the node.
const asking = "asking"

// slots are the slots of a node, and those being moved to it and away from it.
type slots struct{ own, in, out [keyspace.SlotCount]bool }

// slotsOf parses the line of the answering node in a reply of CLUSTER NODES.
func slotsOf(nodes string) *slots {
	s := &slots{}
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "myself") {
			continue
		}
		for _, part := range fields[8:] {
			s.parse(part)
		}
	}
	return s
}

// parse parses one of "7", "7-9", "[7->-id]" and "[7-<-id]".
func (s *slots) parse(part string) {
	to := &s.own
	part, moving := strings.CutPrefix(part, "[")
	first, rest, several := strings.Cut(part, "-")
	last := first
	switch {
	case moving && strings.HasPrefix(rest, ">"):
		to = &s.out
	case moving:
		to = &s.in
	case several:
		last = rest
	}
	for n := max(number(first), 0); n <= min(number(last), keyspace.SlotCount-1); n++ {
		to[n] = true
	}
}

// movesSince returns the moves between two replies.
func (s *slots) movesSince(before *slots) *keyspace.SlotMoves {
	m := &keyspace.SlotMoves{}
	for n := range keyspace.SlotCount {
		m.Came[n] = s.in[n] || before.in[n] || s.own[n] && !before.own[n]
		m.Went[n] = s.out[n] || before.out[n] || !s.own[n] && before.own[n]
	}
	return m
}

// passedThrough reports whether a key may have arrived in one of two intervals and left
// in the same or the other one.
func passedThrough(a, b *keyspace.SlotMoves) bool {
	for n := range keyspace.SlotCount {
		came, went := a.Came[n] || b != nil && b.Came[n], a.Went[n] || b != nil && b.Went[n]
		if came && went {
			return true
		}
	}
	return false
}

// claim makes a watcher the owner of a lock that it has found, and returns the state
// known to the previous owner; ok is false for a new lock.
func (c *Cluster) claim(key string, w *Watcher) (was candidate, ok bool) {
	if c == nil {
		return none, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o, known := c.owners[key]
	if !known || o.watcher == w {
		return none, false
	}
	c.owners[key] = owner{w, o.last}
	c.movedAway[o.watcher] = append(c.movedAway[o.watcher], key)
	return o.last, true
}

// hold lets no other watcher change a lock until release is called.
func (c *Cluster) hold(key string) (release func()) {
	if c == nil {
		return func() {}
	}
	m := &c.changing[maphash.String(keySeed, key)%uint64(len(c.changing))]
	m.Lock()
	return m.Unlock
}

var keySeed = maphash.MakeSeed()

// record stores the state of a watcher's lock.
func (c *Cluster) record(w *Watcher, l candidate) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners[l.lock.Key] = owner{w, l}
	changed := c.prefixes.learn(l.lock.Key)
	for _, beside := range l.companions {
		changed = c.prefixes.learn(beside.Key) || changed
	}
	if changed {
		c.prefixVersion++
	}
}

// ownedByOther reports whether a lock belongs to another watcher.
func (c *Cluster) ownedByOther(key string, w *Watcher) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o, known := c.owners[key]
	return known && o.watcher != w
}

// takeMoved lists the locks of a watcher that others have claimed since the last call.
func (c *Cluster) takeMoved(w *Watcher) []string {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.DeleteFunc(c.movedAway[w], func(key string) bool { return c.owners[key].watcher == w })
	delete(c.movedAway, w)
	return keys
}

// forget removes a lock that a watcher has found gone. It reports whether the lock
// belonged to that watcher: if not, the lock has moved, and its other watcher reports the
// end.
func (c *Cluster) forget(w *Watcher, was candidate) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := was.lock.Key
	if c.owners[key].watcher != w {
		return false
	}
	delete(c.owners, key)
	now := w.times.readEnd
	if len(c.ended) >= 1000 {
		maps.DeleteFunc(c.ended, func(_ string, e end) bool { return now.Sub(e.at) > time.Minute }) // longer than a read takes
	}
	c.ended[key] = end{was, now}
	return true
}

// hasEnded reports whether a watcher that reads a lock since a time has read a hold whose
// end another watcher has already found.
func (c *Cluster) hasEnded(l candidate, since time.Time) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.ended[l.lock.Key]
	return known && since.Before(e.at) && e.last.lock.SoleHolder() == l.lock.SoleHolder()
}

// removeWatcher removes all locks of a watcher.
func (c *Cluster) removeWatcher(w *Watcher) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, o := range c.owners {
		if o.watcher == w {
			delete(c.owners, key)
		}
	}
	delete(c.movedAway, w)
}

// sharePrefixes adds the prefixes of all locks to those of one watcher, and returns
// their version.
func (c *Cluster) sharePrefixes(to *coverage, known int) int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prefixVersion == known {
		return known
	}
	for _, prefix := range c.prefixes {
		to.stale = to.prefixes.learn(prefix) || to.stale
	}
	return c.prefixVersion
}
