package keyspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// pass is one walk over the whole keyspace: a lane of SCANs for each type of
// key that a format lives in, and for each glob.
//
// To ask for a type makes the server visit all keys once for each type, but
// name only those that are of interest. With few types that is cheaper for
// everybody than to have all keys named and to ask for the type of each, and
// no dearer for the server than a script that does the sorting; and a script
// may be forbidden, and holds up everybody else for longer. All lanes move on
// in step, so that the server finds in its caches what it has just visited.
type pass struct {
	reader
	lanes   []*lane
	server  Server
	count   int64 // COUNT of the next pages
	visited int64 // keys, by all lanes together
}

// Bounds of a page.
const (
	firstCount = 250                    // COUNT of the first
	minCount   = 50                     // however slow the server
	maxCount   = 1000                   // more stalls everybody else for milliseconds
	pageTime   = 500 * time.Microsecond // what it may take the server
)

// begin asks the server for its clock, the number of its keys, and what it
// says of itself, and lines up the lanes. All but the clock may be refused.
func (s *Scanner) begin(ctx context.Context) (*pass, error) {
	p := &pass{reader: s.reader(), server: Server{Addr: s.node}, count: firstCount}
	pipe := p.rdb.Pipeline()
	clock := pipe.Time(ctx)
	size := pipe.DBSize(ctx)
	infos := []*redis.StringCmd{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")}
	cmds, err := p.exec(ctx, pipe)
	if err == nil || answered(cmds) {
		err = clock.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("ask the server for its time: %w", err)
	}
	p.now = clock.Val()
	p.cost.Keys = size.Val()
	for _, info := range infos {
		p.server.describe(info.Val())
	}
	globs := s.opts.Match
	if len(globs) == 0 {
		globs = []string{""}
	}
	for _, typ := range p.formats.types() {
		for _, glob := range globs {
			p.lanes = append(p.lanes, &lane{typ: typ, glob: glob, keys: p.cost.Keys})
		}
	}
	return p, nil
}

// done reports whether there is nothing left to walk over.
func (p *pass) done() bool {
	return !slices.ContainsFunc(p.lanes, func(l *lane) bool { return !l.done() })
}

// complete reports whether the whole keyspace has been walked over.
func (p *pass) complete() bool {
	return p.done() && !slices.ContainsFunc(p.lanes, func(l *lane) bool { return l.endless })
}

// step fetches the next page of each lane, in the same round trip glances at
// the keys of the pages before, and takes the locks from among those that have
// shown themselves promising. On error the pass is lost.
func (p *pass) step(ctx context.Context) ([]found, error) {
	pipe := p.rdb.Pipeline()
	before := pipe.Time(ctx)
	for _, l := range p.lanes {
		l.askPage(ctx, pipe, p.count)
	}
	after := pipe.Time(ctx)
	for _, l := range p.lanes {
		l.askGlances(ctx, pipe)
	}
	if err := p.send(ctx, "scan keys", pipe); err != nil {
		return nil, err
	}
	p.now = after.Val()

	var promising []ref
	for _, l := range p.lanes {
		promising = append(promising, l.glanced(p.formats, p.atLeast)...)
		refs, err := l.page(p.formats)
		if err != nil {
			return nil, err
		}
		promising = append(promising, refs...)
		p.visited += l.advance(p.count)
	}
	share := int64(len(p.lanes))
	p.cost.Scanned = p.visited / share
	p.count = nextCount(p.count, after.Val().Sub(before.Val())/time.Duration(share))
	return p.take(ctx, promising)
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
