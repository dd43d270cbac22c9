package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"locktop/keyspace"
)

// scanPass is one pass over the keyspace of a database. Keys go through three stages:
// cursors list them, workers filter them, and the reader reads those that remain. A key
// is probed right after SCAN, while it is still in the CPU cache of the server.
type scanPass struct {
	server         keyspace.Server
	databases      int       // that have keys; 0 = unknown
	history        string    // of writes, when the pass began: master_replid
	now            time.Time // the server's clock at the last step
	cost           keyspace.Cost
	sized          bool                            // DBSIZE has told the number of keys
	networkTime    time.Duration                   // of the last page
	pause          func(ctx context.Context) error // between two stages of a step; nil: there is none
	budget         *Budget                         // nil = no limit: the stages run concurrently
	concurrentFrom time.Duration                   // network time from which the stages run concurrently; 0 = never
	conn           meteredConn                     // for SCAN
	cursors        cursors
	verified       bool // after the last page, the server is the process that the pass began with
	pagesPerStep   int  // of the last step
	filter         prefilter
	reader         reader
	possible       *possibleLocks
	worstFirst     bool       // with many locks, those without a TTL are read before the others
	deferred       []deferred // that are read after them, the first first
}

// deferred is a key that passed the filter, of this type.
type deferred struct{ name, typ string }

// With more known locks, a pass that reads the worst first defers the others. Each step reads one
// of them for so many keys that remain, so that it also finds them in a keyspace that takes hours.
const (
	manyLocks     = 10_000
	deferredShare = 4
)

// Bounds of a step and of a page. The number of workers keeps the server busy: it works
// on the request of one worker while the others process replies.
const (
	maxPages   = 16                     // in a step, without a budget
	maxWorkers = 3                      // without a budget
	firstCount = 250                    // COUNT of the first page
	minCount   = 50                     // for the slowest server
	maxCount   = 1000                   // more would block other clients for milliseconds
	pageTime   = 500 * time.Microsecond // target time of a page on the server
)

// pageWork is the time that a page and the probes of its keys may take on the server.
const pageWork = 2 * time.Millisecond

// idlesOf is the greatest number of keys whose idle times a first pass asks for. Of 100,000 keys that takes the
// server 0.1 s.
const idlesOf = 100_000

// startPass reads the server's clock, key count and INFO, and creates a cursor for each
// glob. Everything but the clock is optional.
func (s *Scanner) startPass(ctx context.Context, possible *possibleLocks) (*scanPass, error) {
	p := &scanPass{
		server: keyspace.Server{Addr: s.node},
		budget: s.opts.Budget,
		conn:   s.newConn(),
		filter: prefilter{
			index: s.index, atLeast: s.opts.MinConfidence, threshold: s.opts.MinConfidence, unread: make(unread), confirmed: possible.confirmed, alike: possible.alike,
			guesses: make(typeGuesses), noProbe: map[string]bool{"stream": true}, // a first piece would tell no more than the name
		},
		reader:   s.reader(),
		possible: possible,
		cursors:  cursors{count: firstCount},
	}
	p.reader.confirmed = possible.confirmed
	pipe := s.rdb.Pipeline()
	clock := pipe.Time(ctx)
	size := pipe.DBSize(ctx)
	infos := []*redis.StringCmd{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication"), pipe.Info(ctx, "memory"), pipe.Info(ctx, "stats"), pipe.Info(ctx, "clients")}
	databases := pipe.Info(ctx, "keyspace")
	cluster := new(redis.StringCmd)
	if s.opts.Cluster != nil {
		cluster = pipe.ClusterInfo(ctx)
	}
	_, err := p.conn.exec(ctx, pipe)
	if err == nil {
		err = clock.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("get the time of the server: %w", err)
	}
	p.now = clock.Val()
	p.cost = p.conn.takeCost()
	p.cost.Keys, p.sized = size.Val(), size.Err() == nil
	p.filter.idles = p.sized && p.cost.Keys <= idlesOf
	for _, info := range infos {
		if info.Err() == nil {
			describeServer(&p.server, info.Val())
		}
	}
	s.timesFields.Store(timesFields(p.server))
	p.history, _ = InfoValue(infos[1].Val(), "master_replid")
	p.databases = strings.Count(databases.Val(), "\ndb")
	p.server.ClusterDown = strings.Contains(cluster.Val(), "cluster_state:fail")
	p.server.PartialCluster = p.server.Mode == "cluster" && s.opts.Cluster == nil
	globs := s.opts.Match
	if len(globs) == 0 {
		globs = []string{""}
	}
	for _, glob := range globs {
		p.cursors.all = append(p.cursors.all, cursor{glob: glob, keys: p.cost.Keys})
	}
	return p, nil
}

// shows reports whether a lock that was found is shown.
func (p *scanPass) shows(c candidate) bool {
	return c.lock.Confidence >= enough || p.possible.shows(c, p.cursors.visited, p.now)
}

// done reports whether the pass has ended.
func (p *scanPass) done() bool { return p.scanned() && p.verified }

// scanned reports whether all keys were scanned.
func (p *scanPass) scanned() bool { return p.cursors.done() && len(p.deferred) == 0 }

// complete reports whether the whole keyspace was scanned.
func (p *scanPass) complete() bool {
	return p.done() && !slices.ContainsFunc(p.cursors.all, func(c cursor) bool { return c.gaveUp })
}

// step advances the cursors by one page, or by several if the stages run concurrently,
// and returns the locks on them. The last step verifies the server, so that what is on the
// last page does not wait for that. After an error the state is unchanged and the step may
// be repeated on the same server process; the cursors are invalid on another.
func (p *scanPass) step(ctx context.Context) (found []candidate, err error) {
	before := p.cost.ServerTime
	defer func() { p.budget.charge(p.cost.ServerTime-before, p.networkTime, time.Now()) }()
	if p.scanned() {
		err := p.conn.checkRunID(ctx, p.server.RunID)
		p.cost.Add(p.conn.takeCost())
		p.verified = err == nil
		return nil, err
	}
	atLeast := p.possible.atLeast(p.cursors.visited, p.filter.weakHits)
	p.filter.atLeast, p.reader.atLeast = atLeast, atLeast
	pages, n := 1, 1
	if p.budget == nil || p.concurrentFrom > 0 && p.networkTime >= p.concurrentFrom { // the first step is small, so that results appear soon
		pages, n = min(max(1, 2*p.pagesPerStep), maxPages), maxWorkers
	}
	next, workers := p.cursors, make([]*filterWorker, n)
	next.all = slices.Clone(next.all)
	for i := range workers {
		workers[i] = &filterWorker{filter: &p.filter, conn: p.conn.scanner.newConn(), unread: make(unread),
			newGuesses: make(typeGuesses), newNoProbe: make(map[string]bool), skipped: make(map[string]int)}
	}
	if n == 1 { // while workers run beside it, nothing may change what is known
		workers[0].pause = p.pause
	}
	if err = p.runFilter(ctx, &next, pages, workers); err == nil && p.pause != nil {
		err = p.pause(ctx)
	}
	later := p.deferred
	if err == nil {
		for _, w := range workers {
			found = append(found, w.passed...)
		}
		again := p.pause != nil && !p.worstFirst // a pause of a later pass may take the report that a lock has changed since its probe
		p.filter.deadlines = !again && p.reader.exact() && int64(2*len(found)) > next.visited-p.cursors.visited
		found, later, err = p.deferSome(ctx, found)
	}
	if err == nil {
		found = slices.DeleteFunc(found, func(c candidate) bool { k := p.filter.known[c.name]; return k != nil && !k.partial })
		found, err = p.reader.detect(ctx, found)
	}
	p.account(workers)
	if err != nil {
		return nil, err
	}
	p.deferred = later
	p.filter.merge(workers)
	p.filter.unread.add(p.reader.unreadKeys())
	p.cursors, p.pagesPerStep = next, pages
	p.cost.Scanned = cmp.Or(next.visited/int64(len(next.all)), next.names) - int64(len(later))
	if next.done() && !p.sized {
		p.cost.Keys = next.names
	}
	return found, nil
}

// deferSome returns the keys of a page that are read now, and those that are read later.
func (p *scanPass) deferSome(ctx context.Context, page []candidate) (now []candidate, later []deferred, err error) {
	if !p.worstFirst || len(p.filter.known) < manyLocks && len(p.deferred) == 0 {
		return page, nil, nil
	}
	later = p.deferred
	var unread []candidate
	for _, c := range page {
		if c.entry != nil {
			now = append(now, c)
		} else {
			unread = append(unread, c)
		}
	}
	ttl := func(pipe redis.Pipeliner, c candidate) *redis.DurationCmd { return pipe.PTTL(ctx, c.name) }
	err = inBatches(ctx, &p.reader.conn, "get the TTLs of keys", unread, ttl, func(c candidate, left *redis.DurationCmd) {
		if left.Val() > 0 {
			later = append(later, deferred{c.name, c.typ})
		} else {
			now = append(now, c)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	n := min(len(page)/deferredShare, len(later))
	if p.cursors.done() {
		n = min(2*batchSize, len(later))
	}
	for _, k := range later[:n] {
		now = append(now, candidate{name: k.name, typ: k.typ})
	}
	return now, later[n:], nil
}

// snapshot returns the snapshot so far. scanned says that all keys were scanned.
func (p *scanPass) snapshot(locks []*keyspace.Lock, scanned bool, keys unread) keyspace.Snapshot {
	n := keyspace.Node{Server: p.server, Up: true, Ping: p.networkTime, Keys: p.cost.Keys, Locks: len(locks), Scanned: scanned, Unread: keys.String()}
	n.Possible, n.PossibleAtLeast = p.possible.notShown()
	return keyspace.Snapshot{
		At: p.now, Locks: locks, Complete: scanned && len(n.Doubts()) == 0, Cost: p.cost, Server: p.server,
		Nodes:    []keyspace.Node{n},
		Problems: append(n.Doubts(), p.problems()...),
	}
}

// problems lists what this user cannot see.
func (p *scanPass) problems() []string {
	var all []string
	if p.server.PartialCluster {
		all = append(all, partOfCluster)
	}
	if slices.ContainsFunc(p.cursors.all, func(c cursor) bool { return c.gaveUp }) {
		all = append(all, "keys are added faster than they can be scanned, and the scan was given up")
	}
	all = append(all, keyspace.AlikeProblems(p.filter.alike.crowded)...)
	return append(all, p.conn.scanner.denied.problems()...)
}

// partOfCluster says that the other nodes are not scanned.
const partOfCluster = "this server is part of a cluster: add --cluster to see all of it"

// runFilter lets the workers filter the names on the next pages.
func (p *scanPass) runFilter(ctx context.Context, next *cursors, pages int, workers []*filterWorker) error {
	names := make(chan []string)
	work, within := errgroup.WithContext(ctx)
	for _, w := range workers {
		work.Go(func() error { return w.run(within, names) })
	}
	work.Go(func() error {
		defer close(names)
		return next.sendPages(within, &p.conn, pages, names)
	})
	return work.Wait()
}

// account adds up the cost of the stages and takes the latest server time.
func (p *scanPass) account(workers []*filterWorker) {
	p.networkTime = p.conn.networkTime
	conns := []*meteredConn{&p.conn, &p.reader.conn}
	for _, w := range workers {
		conns = append(conns, &w.conn)
	}
	for _, c := range conns {
		p.now = keyspace.Later(p.now, c.now)
		p.cost.Add(c.takeCost())
	}
}

// retryInterval is the time between two attempts to start or resume a pass.
const retryInterval = 100 * time.Millisecond

// startWithRetry starts a pass, and retries errors that are retryable until giveUp.
func (s *Scanner) startWithRetry(ctx context.Context, possible *possibleLocks, giveUp time.Time, retryable func(error) bool) (*scanPass, error) {
	for {
		p, err := s.startPass(ctx, possible)
		if err == nil || !retryable(err) || !time.Now().Before(giveUp) {
			return p, err
		}
		if err := sleep(ctx, retryInterval); err != nil {
			return nil, err
		}
	}
}

// resume continues a pass after an error of a step, but not after giveUp. If the server
// process is the same, it returns the same pass. Another process has other cursors, so
// the pass starts again; known locks are then found again.
func (s *Scanner) resume(ctx context.Context, p *scanPass, err error, giveUp time.Time) (*scanPass, error) {
	if !isTransient(err) && !isConnLost(err) || !time.Now().Before(giveUp) {
		return nil, err
	}
	if err := sleep(ctx, retryInterval); err != nil {
		return nil, err
	}
	again, err := s.startWithRetry(ctx, p.possible, giveUp, func(err error) bool { return isTransient(err) || isConnLost(err) })
	if err != nil {
		return nil, err
	}
	if again.server.RunID == "" || again.server.RunID != p.server.RunID {
		return again, nil
	}
	p.cost.Add(again.cost)
	return p, nil
}

// cursor is the position of a SCAN through the keyspace, or through the keys of one
// glob.
type cursor struct {
	glob    string // "" = all keys
	keys    int64  // keys in the keyspace at the start
	pos     uint64
	scanned int64 // keys visited
	atEnd   bool  // SCAN has returned cursor 0
	gaveUp  bool  // SCAN did not end and was given up
}

// A SCAN is given up after it has visited this many times the number of keys, plus a
// margin: a writer that adds keys as fast as they are scanned would never let it end.
const (
	maxRevisits  = 4
	revisitSlack = 10_000
)

// done reports whether the SCAN is over.
func (c *cursor) done() bool { return c.atEnd || c.gaveUp }

// advance records a page that was requested with COUNT count and ends at pos. It returns the number
// of keys that the page adds to the progress: together they add up to the number of keys at the start.
func (c *cursor) advance(count int64) int64 {
	before := min(c.scanned, c.keys)
	c.scanned += count
	c.atEnd = c.pos == 0
	c.gaveUp = !c.atEnd && c.keys > 0 && c.scanned > maxRevisits*c.keys+revisitSlack
	if c.done() {
		return c.keys - before
	}
	return min(c.scanned, c.keys) - before
}

// cursors are the cursors of a pass, one for each glob.
type cursors struct {
	all     []cursor
	count   int64 // COUNT of the next page
	visited int64 // keys visited by all cursors; 0 if their number is unknown
	names   int64 // names returned to all cursors
}

// done reports whether all cursors are done.
func (cs cursors) done() bool {
	return !slices.ContainsFunc(cs.all, func(c cursor) bool { return !c.done() })
}

// sendPages advances the cursors by n pages, or to their end, and sends the names to
// the channel in batches.
func (cs *cursors) sendPages(ctx context.Context, conn *meteredConn, n int, names chan<- []string) error {
	for ; n > 0 && !cs.done(); n-- {
		page, err := cs.nextPage(ctx, conn)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(page, 256) { // the keys that are probed per round trip
			select {
			case names <- some:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// nextPage advances each cursor that is not done by one page, adapts COUNT to the time
// of the reply, and returns the names.
func (cs *cursors) nextPage(ctx context.Context, conn *meteredConn) (names []string, err error) {
	replies := make([]*redis.ScanCmd, len(cs.all))
	sent := 0
	err = conn.pipelined(ctx, "scan keys", func(pipe redis.Pipeliner) {
		for i, c := range cs.all {
			if !c.done() {
				replies[i] = pipe.Scan(ctx, c.pos, c.glob, cs.count)
				sent++
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i, reply := range replies {
		if reply == nil {
			continue
		}
		some, next, err := reply.Result()
		if err != nil {
			return nil, fmt.Errorf("scan keys: %w", err)
		}
		names, cs.all[i].pos = append(names, some...), next
		cs.visited, cs.names = cs.visited+cs.all[i].advance(cs.count), cs.names+int64(len(some))
	}
	cs.count = nextCount(cs.count, conn.serverTime/time.Duration(sent))
	return names, nil
}

// nextCount adapts COUNT so that a page takes pageTime on the server.
func nextCount(count int64, took time.Duration) int64 {
	fit := 2 * count
	if took > 0 {
		fit = count * int64(pageTime) / int64(took)
	}
	fit = min(max(fit, count/2), 2*count)
	return min(max(fit, minCount), maxCount)
}
