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
// three stages: a walk names them, sifters tell those worth reading, the reader
// reads these. What a walk has just touched is still near the server's processor
// when it is asked about next.
type pass struct {
	server Server
	now    time.Time // the server's clock at the last step
	cost   Cost
	way    time.Duration // what the last page took on its way, the server's work aside
	atOnce bool          // the stages may ask the server at the same time,
	far    time.Duration // and so they may where the way to it takes at least this long; 0: never
	link   link          // of the walks
	open   func() link   // another
	turn   turn
	pages  int // at the last step
	sieve  sieve
	reader reader
}

// Bounds of a step, and of a page. Sifters at work beside the walk are as many as
// keep the server busy: it works on what one has sent while the others look at
// its answers.
const (
	manyPages   = 16                     // in a step, where nobody minds how much is asked at once
	manySifters = 3                      // at work then
	firstCount  = 250                    // COUNT of the first
	minCount    = 50                     // however slow the server
	maxCount    = 1000                   // more stalls everybody else for milliseconds
	pageTime    = 500 * time.Microsecond // what it may take the server
)

// pageWork is what a page and the questions about its keys may take the server.
const pageWork = 2 * time.Millisecond

// farAway is how long the way to a server must take for the stages to ask it at the
// same time, whatever the budget: a page for each round trip then is within it.
func farAway(p *Budget) time.Duration {
	return time.Duration(float64(pageWork) / p.Share())
}

// begin asks the server for its clock, the number of its keys, and what it
// says of itself, and lines up a walk for each glob. All of that may be refused.
func (s *Scanner) begin(ctx context.Context) (*pass, error) {
	p := &pass{
		server: Server{Addr: s.node},
		atOnce: s.opts.Budget == nil,
		link:   s.link(),
		open:   s.link,
		sieve:  newSieve(s.index, s.opts.MinConfidence),
		reader: s.reader(),
		turn:   turn{count: firstCount},
	}
	pipe := s.rdb.Pipeline()
	clock := pipe.Time(ctx)
	size := pipe.DBSize(ctx)
	infos := []*redis.StringCmd{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication"), pipe.Info(ctx, "memory"), pipe.Info(ctx, "stats"), pipe.Info(ctx, "clients")}
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
	p.server.Alone = p.server.Mode == "cluster" && s.opts.Cluster == nil
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
func (p *pass) done() bool { return p.turn.walked() }

// complete reports whether the whole keyspace has been looked at.
func (p *pass) complete() bool {
	return p.done() && !slices.ContainsFunc(p.turn.walks, func(w walk) bool { return w.endless })
}

// step takes the walks a page further, or by some where the stages go at once, and
// returns the locks on them. On error nothing has moved, and the step may be tried
// again, as long as the server is the same process: its cursors mean nothing to
// another.
func (p *pass) step(ctx context.Context) ([]found, error) {
	pages, n := 1, 1
	if p.atOnce || p.far > 0 && p.way >= p.far { // the first results come soon
		pages, n = min(max(1, 2*p.pages), manyPages), manySifters
	}
	next, sifters := p.turn.copy(), p.sieve.sifters(n, p.open)
	err := p.sift(ctx, &next, pages, sifters)
	var locks []found
	if err == nil {
		locks, err = p.reader.take(ctx, promising(sifters))
		p.sieve.astray += len(p.reader.astray)
	}
	p.book(sifters)
	if err == nil && next.walked() {
		err = p.link.expect(ctx, p.server.RunID)
		p.cost.add(p.link.reckon()) // nothing may be left for another step
	}
	if err != nil {
		return nil, err
	}
	p.sieve.settle(sifters)
	p.turn, p.pages = next, pages
	p.cost.Scanned = next.visited / int64(len(next.walks))
	return locks, nil
}

// sift has sifters look at what is on the next pages.
func (p *pass) sift(ctx context.Context, next *turn, pages int, sifters []*sifter) error {
	names := make(chan []string)
	work, within := errgroup.WithContext(ctx)
	for _, s := range sifters {
		work.Go(func() error { return s.run(within, names) })
	}
	work.Go(func() error {
		defer close(names)
		return next.pages(within, &p.link, pages, names)
	})
	return work.Wait()
}

// promising lists what sifters have let through.
func promising(sifters []*sifter) (refs []ref) {
	for _, s := range sifters {
		refs = append(refs, s.promising...)
	}
	return refs
}

// book adds up what the stages have cost, and takes the clock of the one that
// heard of it last.
func (p *pass) book(sifters []*sifter) {
	p.way = p.link.way
	links := []*link{&p.link, &p.reader.link}
	for _, s := range sifters {
		links = append(links, &s.link)
	}
	for _, l := range links {
		if l.now.After(p.now) {
			p.now = l.now
		}
		p.cost.add(l.reckon())
	}
}
