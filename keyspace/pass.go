package keyspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// scanPass is one look at the whole keyspace of a database. Keys go through it in
// three stages: a walk names them, sifters tell those worth reading, the reader
// reads these. What a walk has just touched is still near the server's processor
// when it is asked about next.
type scanPass struct {
	server         Server
	now            time.Time // the server's clock at the last step
	cost           Cost
	networkTime    time.Duration      // what the last page took on its way, the server's work aside
	unlimited      bool               // the stages may ask the server at the same time,
	concurrentFrom time.Duration      // and so they may where the way to it takes at least this long; 0: never
	conn           meteredConn        // of the walks
	newConn        func() meteredConn // another
	cursors        cursors
	pagesPerStep   int // at the last step
	filter         prefilter
	reader         reader
}

// Bounds of a step, and of a page. Sifters at work beside the walk are as many as
// keep the server busy: it works on what one has sent while the others look at
// its answers.
const (
	maxPages   = 16                     // in a step, where nobody minds how much is asked at once
	maxWorkers = 3                      // at work then
	firstCount = 250                    // COUNT of the first
	minCount   = 50                     // however slow the server
	maxCount   = 1000                   // more stalls everybody else for milliseconds
	pageTime   = 500 * time.Microsecond // what it may take the server
)

// pageWork is what a page and the questions about its keys may take the server.
const pageWork = 2 * time.Millisecond

// concurrencyThreshold is how long the way to a server must take for the stages to ask it at the
// same time, whatever the budget: a page for each round trip then is within it.
func concurrencyThreshold(p *Budget) time.Duration {
	return time.Duration(float64(pageWork) / p.Share())
}

// startPass asks the server for its clock, the number of its keys, and what it
// says of itself, and lines up a walk for each glob. All of that may be refused.
func (s *Scanner) startPass(ctx context.Context) (*scanPass, error) {
	p := &scanPass{
		server:    Server{Addr: s.node},
		unlimited: s.opts.Budget == nil,
		conn:      s.newConn(),
		newConn:   s.newConn,
		filter:    newPrefilter(s.index, s.opts.MinConfidence),
		reader:    s.reader(),
		cursors:   cursors{count: firstCount},
	}
	pipe := s.rdb.Pipeline()
	clock := pipe.Time(ctx)
	size := pipe.DBSize(ctx)
	infos := []*redis.StringCmd{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication"), pipe.Info(ctx, "memory"), pipe.Info(ctx, "stats"), pipe.Info(ctx, "clients")}
	_, err := p.conn.exec(ctx, pipe)
	if err == nil {
		err = clock.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("ask the server for its time: %w", err)
	}
	p.now = clock.Val()
	p.cost = p.conn.takeCost()
	p.cost.Keys = size.Val()
	for _, info := range infos {
		if info.Err() == nil {
			p.server.describe(info.Val())
		}
	}
	p.server.Alone = p.server.Mode == "cluster" && s.opts.Cluster == nil
	globs := s.opts.Match
	if len(globs) == 0 {
		globs = []string{""}
	}
	for _, glob := range globs {
		p.cursors.all = append(p.cursors.all, cursor{glob: glob, keys: p.cost.Keys})
	}
	return p, nil
}

// maxWeakReads is how many keys are read in a pass that would need a second sign to
// count: most of them turn out to be nothing at all.
const maxWeakReads = 4096

// setThreshold says how sure a key must be from now on to come out at the end.
func (p *scanPass) setThreshold(atLeast Confidence) {
	if p.filter.weakHits >= maxWeakReads {
		atLeast = max(atLeast, p.filter.threshold)
	}
	p.filter.atLeast, p.reader.atLeast = atLeast, atLeast
}

// done reports whether there is nothing left to look at.
func (p *scanPass) done() bool { return p.cursors.done() }

// complete reports whether the whole keyspace has been looked at.
func (p *scanPass) complete() bool {
	return p.done() && !slices.ContainsFunc(p.cursors.all, func(c cursor) bool { return c.gaveUp })
}

// step takes the walks a page further, or by some where the stages go at once, and
// returns the locks on them. On error nothing has moved, and the step may be tried
// again, as long as the server is the same process: its cursors mean nothing to
// another.
func (p *scanPass) step(ctx context.Context) ([]detection, error) {
	pages, n := 1, 1
	if p.unlimited || p.concurrentFrom > 0 && p.networkTime >= p.concurrentFrom { // the first results come soon
		pages, n = min(max(1, 2*p.pagesPerStep), maxPages), maxWorkers
	}
	next, workers := p.cursors.clone(), p.filter.workers(n, p.newConn)
	err := p.runFilter(ctx, &next, pages, workers)
	var found []detection
	if err == nil {
		found, err = p.reader.detect(ctx, passedRefs(workers))
		p.filter.unlocated += len(p.reader.unlocated)
	}
	p.account(workers)
	if err == nil && next.done() {
		err = p.conn.checkRunID(ctx, p.server.RunID)
		p.cost.add(p.conn.takeCost()) // nothing may be left for another step
	}
	if err != nil {
		return nil, err
	}
	p.filter.merge(workers)
	p.cursors, p.pagesPerStep = next, pages
	p.cost.Scanned = next.visited / int64(len(next.all))
	return found, nil
}

// runFilter has sifters look at what is on the next pages.
func (p *scanPass) runFilter(ctx context.Context, next *cursors, pages int, workers []*filterWorker) error {
	names := make(chan []string)
	work, within := errgroup.WithContext(ctx)
	for _, s := range workers {
		work.Go(func() error { return s.run(within, names) })
	}
	work.Go(func() error {
		defer close(names)
		return next.sendPages(within, &p.conn, pages, names)
	})
	return work.Wait()
}

// passedRefs lists what sifters have let through.
func passedRefs(workers []*filterWorker) (refs []keyRef) {
	for _, s := range workers {
		refs = append(refs, s.passed...)
	}
	return refs
}

// account adds up what the stages have cost, and takes the clock of the one that
// heard of it last.
func (p *scanPass) account(workers []*filterWorker) {
	p.networkTime = p.conn.networkTime
	links := []*meteredConn{&p.conn, &p.reader.meteredConn}
	for _, s := range workers {
		links = append(links, &s.meteredConn)
	}
	for _, l := range links {
		if l.now.After(p.now) {
			p.now = l.now
		}
		p.cost.add(l.takeCost())
	}
}
