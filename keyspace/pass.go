package keyspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// pass is one look at the whole keyspace of a database. Keys go through it in
// three stages: a walk names them, the sieve tells those worth reading, the
// reader reads these. All three move on together, a page at a step, each with
// what the others had for it at the step before.
type pass struct {
	server    Server
	now       time.Time // the server's clock at the last step
	cost      Cost
	way       time.Duration // what the last page took on its way, the server's work aside
	atOnce    bool          // the stages may ask the server at the same time
	visited   int64         // keys, by all walks together
	link      link          // of the walks
	open      func() link   // another
	turn      turn
	sieve     sieve
	reader    reader
	promising []ref // for the reader
}

// Bounds of a step, and of a page.
const (
	manyPages  = 4                      // in a step, where nobody minds how much is asked at once
	firstCount = 250                    // COUNT of the first
	minCount   = 50                     // however slow the server
	maxCount   = 1000                   // more stalls everybody else for milliseconds
	pageTime   = 500 * time.Microsecond // what it may take the server
)

// begin asks the server for its clock, the number of its keys, and what it
// says of itself, and lines up a walk for each glob. All of that may be refused.
func (s *Scanner) begin(ctx context.Context) (*pass, error) {
	p := &pass{
		server: Server{Addr: s.node},
		atOnce: s.opts.Pace == nil,
		link:   s.link(),
		open:   s.link,
		sieve:  newSieve(s.index, s.opts.MinConfidence),
		reader: s.reader(),
		turn:   turn{count: firstCount},
	}
	pipe := s.rdb.Pipeline()
	clock := pipe.Time(ctx)
	size := pipe.DBSize(ctx)
	infos := []*redis.StringCmd{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication"), pipe.Info(ctx, "memory"), pipe.Info(ctx, "stats")}
	_, err := p.link.exec(ctx, pipe)
	if err == nil {
		err = clock.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("ask the server for its time: %w", err)
	}
	p.now = clock.Val()
	p.cost = p.link.reckon()
	p.cost.Keys = size.Val()
	for _, info := range infos {
		if info.Err() == nil {
			p.server.describe(info.Val())
		}
	}
	globs := s.opts.Match
	if len(globs) == 0 {
		globs = []string{""}
	}
	for _, glob := range globs {
		p.turn.walks = append(p.turn.walks, walk{glob: glob, keys: p.cost.Keys})
	}
	return p, nil
}

// hopesMost is how many keys are read in a pass that would need a second sign to
// count: most of them turn out to be nothing at all.
const hopesMost = 4096

// accept says how sure a key must be from now on to come out at the end.
func (p *pass) accept(atLeast Confidence) {
	if p.sieve.hopes >= hopesMost {
		atLeast = max(atLeast, p.sieve.enough)
	}
	p.sieve.atLeast, p.reader.atLeast = atLeast, atLeast
}

// done reports whether there is nothing left to look at.
func (p *pass) done() bool {
	return p.turn.walked() && len(p.sieve.suspects) == 0 && len(p.promising) == 0
}

// complete reports whether the whole keyspace has been looked at.
func (p *pass) complete() bool {
	return p.done() && !slices.ContainsFunc(p.turn.walks, func(w walk) bool { return w.endless })
}

// step takes each stage further, the walks by a page, or by some where all go at
// once: then what one stage waits for another at the end weighs less. It returns
// the locks that came out at the end. On error nothing has moved, and the step
// may be tried again, as long as the server is the same process: its cursors mean
// nothing to another.
func (p *pass) step(ctx context.Context) ([]found, error) {
	var next turn
	var locks []found
	pinches := p.sieve.pinches(p.open)
	stages, within := errgroup.WithContext(ctx)
	pages := manyPages
	if !p.atOnce {
		stages.SetLimit(1)
		pages = 1
	}
	stages.Go(func() (err error) { next, err = p.turn.over(within, &p.link, pages); return err })
	for _, some := range pinches {
		stages.Go(func() error { return some.sift(within) })
	}
	stages.Go(func() (err error) { locks, err = p.reader.take(within, p.promising); return err })
	err := stages.Wait()
	p.book(pinches)
	if err == nil && next.walked() && !p.turn.walked() {
		err = p.link.expect(ctx, p.server.RunID)
	}
	if err != nil {
		return nil, err
	}
	p.promising = p.sieve.settle(pinches)
	p.sieve.add(next.names)
	p.visited += next.visited
	p.cost.Scanned = p.visited / int64(len(next.walks))
	p.turn = next
	return locks, nil
}

// book adds up what the stages have cost, and takes the clock of the one that
// heard of it last.
func (p *pass) book(pinches []*pinch) {
	p.way = p.link.way
	links := []*link{&p.link, &p.reader.link}
	for _, some := range pinches {
		links = append(links, &some.link)
	}
	for _, l := range links {
		if l.now.After(p.now) {
			p.now = l.now
		}
		p.cost.add(l.reckon())
	}
}
