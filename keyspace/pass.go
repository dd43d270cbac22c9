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
	count     int64         // COUNT of the next pages
	visited   int64         // keys, by all walks together
	link      link          // of the walks
	open      func() link   // another
	walks     []*walk
	sieve     sieve
	reader    reader
	promising []ref // for the reader
}

// Bounds of a page.
const (
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
		count:  firstCount,
		atOnce: s.opts.Pace == nil,
		link:   s.link(),
		open:   s.link,
		sieve:  newSieve(s.opts.Formats, s.opts.MinConfidence),
		reader: s.reader(),
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
		p.server.describe(info.Val())
	}
	globs := s.opts.Match
	if len(globs) == 0 {
		globs = []string{""}
	}
	for _, glob := range globs {
		p.walks = append(p.walks, &walk{glob: glob, keys: p.cost.Keys})
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
	return p.walked() && len(p.sieve.suspects) == 0 && len(p.promising) == 0
}

// walked reports whether all walks are over.
func (p *pass) walked() bool {
	return !slices.ContainsFunc(p.walks, func(w *walk) bool { return !w.done() })
}

// complete reports whether the whole keyspace has been looked at.
func (p *pass) complete() bool {
	return p.done() && !slices.ContainsFunc(p.walks, func(w *walk) bool { return w.endless })
}

// step takes each stage a page further, and returns the locks that came out at
// the end. On error nothing has moved, and the step may be tried again, as long
// as the server is the same process: its cursors mean nothing to another.
func (p *pass) step(ctx context.Context) ([]found, error) {
	var pages []*redis.ScanCmd
	var locks []found
	pinches := p.sieve.pinches(p.open)
	stages, ctx := errgroup.WithContext(ctx)
	if !p.atOnce {
		stages.SetLimit(1)
	}
	stages.Go(func() (err error) { pages, err = p.turn(ctx); return err })
	for _, some := range pinches {
		stages.Go(func() error { return some.sift(ctx) })
	}
	stages.Go(func() (err error) { locks, err = p.reader.take(ctx, p.promising); return err })
	err := stages.Wait()
	p.book(pinches)
	if err != nil {
		return nil, err
	}
	p.promising = p.sieve.settle(pinches)
	return locks, p.leaf(pages)
}

// turn asks for the next page of each walk.
func (p *pass) turn(ctx context.Context) ([]*redis.ScanCmd, error) {
	if p.walked() {
		return nil, nil
	}
	pages := make([]*redis.ScanCmd, len(p.walks))
	err := p.link.ask(ctx, "scan keys", func(pipe redis.Pipeliner) {
		for i, w := range p.walks {
			pages[i] = w.ask(ctx, pipe, p.count)
		}
	})
	return pages, err
}

// leaf hands the names on the pages to the sieve, and fits the size of the next
// to what these took the server.
func (p *pass) leaf(pages []*redis.ScanCmd) error {
	turned := 0
	for i, page := range pages {
		names, visited, err := p.walks[i].take(page, p.count)
		if err != nil {
			return err
		}
		p.sieve.add(names)
		p.visited += visited
		if page != nil {
			turned++
		}
	}
	p.cost.Scanned = p.visited / int64(len(p.walks))
	if turned > 0 {
		p.count = nextCount(p.count, p.link.took/time.Duration(turned))
	}
	return nil
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

// nextCount fits COUNT to what a page took the server, by the server's clock.
func nextCount(count int64, took time.Duration) int64 {
	fit := 2 * count
	if took > 0 {
		fit = count * int64(pageTime) / int64(took)
	}
	fit = min(max(fit, count/2), 2*count)
	return min(max(fit, minCount), maxCount)
}
