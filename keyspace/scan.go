package keyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// Scanner finds the locks of one database of one server, which may stand
// behind Sentinel. A cluster is not walked: give it a client of one node.
//
// It sends read-only commands: SCAN in small pages, and bounded reads of what
// might be a lock. Still, reading a key that has expired makes a master delete
// it. A Scanner may be used from several goroutines; each Scan then costs the
// server what one does.
type Scanner struct {
	rdb  redis.UniversalClient
	opts ScanOptions
	node string
}

// ScanOptions say what to look for.
type ScanOptions struct {
	Formats       []Format   // in order of preference; see package formats
	DB            int        // the number that the locks bear; the client chooses the database
	Match         []string   // globs as SCAN takes them; keys that match any are looked at. None: all keys
	MinConfidence Confidence // 0 = Likely
	Progress      func(Cost) // called after each page of a Scan, from one goroutine at a time; may be nil
}

// NewScanner returns a scanner that reads through rdb, which stays the
// caller's. Nothing is sent yet.
func NewScanner(rdb redis.UniversalClient, o ScanOptions) *Scanner {
	if o.MinConfidence == No {
		o.MinConfidence = Likely
	}
	if o.Progress == nil {
		o.Progress = func(Cost) {}
	}
	s := &Scanner{rdb: rdb, opts: o}
	if c, ok := rdb.(interface{ Options() *redis.Options }); ok {
		s.node = c.Options().Addr
	}
	return s
}

// Scan walks over the whole keyspace once and returns the locks in it. What is
// there from beginning to end is found; what comes or goes meanwhile may be.
// The snapshot is incomplete only if keys were added faster than they could be
// walked over, and the walk was given up.
//
// It returns an error if the server cannot be reached, does not answer, or
// refuses SCAN or TIME. Keys that may not be read are passed over.
func (s *Scanner) Scan(ctx context.Context) (Snapshot, error) {
	p, err := s.begin(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	seen := make(picture)
	var mu sync.Mutex // guards p and seen
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lanesAtOnce)
	for _, l := range p.lanes {
		group.Go(func() error {
			for !l.done() {
				h, err := l.step(ctx)
				if err != nil {
					return err
				}
				mu.Lock()
				seen.add(h.locks)
				p.book(h)
				s.opts.Progress(p.cost)
				mu.Unlock()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{At: p.now, Locks: seen.locks(), Complete: p.complete(), Cost: p.cost, Server: p.server}, nil
}

// lanesAtOnce lets the server read for one lane while we decode for another.
const lanesAtOnce = 2

// reader returns a reader of what the scanner is looking for.
func (s *Scanner) reader() reader {
	return reader{
		link:    link{rdb: s.rdb},
		formats: s.opts.Formats,
		atLeast: s.opts.MinConfidence,
		node:    s.node,
		db:      s.opts.DB,
	}
}

// pass is one walk over the whole keyspace: a lane for each type of key that a
// format lives in, and for each glob.
type pass struct {
	lanes   []*lane
	server  Server
	now     time.Time // the server's clock, as last heard
	visited int64     // keys, by all lanes together
	cost    Cost
}

// begin asks the server for its clock, the number of its keys, and what it
// says of itself, and lines up the lanes. All but the clock may be refused.
func (s *Scanner) begin(ctx context.Context) (*pass, error) {
	l := link{rdb: s.rdb}
	pipe := s.rdb.Pipeline()
	clock := pipe.Time(ctx)
	size := pipe.DBSize(ctx)
	infos := []*redis.StringCmd{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")}
	cmds, err := l.exec(ctx, pipe)
	if err == nil || answered(cmds) {
		err = clock.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("ask the server for its time: %w", err)
	}
	p := &pass{server: Server{Addr: s.node}, now: clock.Val(), cost: l.cost}
	p.cost.Keys = size.Val()
	for _, info := range infos {
		p.server.describe(info.Val())
	}
	globs := s.opts.Match
	if len(globs) == 0 {
		globs = []string{""}
	}
	for _, typ := range catalogue(s.opts.Formats).types() {
		for _, glob := range globs {
			p.lanes = append(p.lanes, &lane{reader: s.reader(), typ: typ, glob: glob, keys: p.cost.Keys, count: firstCount})
		}
	}
	return p, nil
}

// book enters what a step of a lane has brought and cost.
func (p *pass) book(h haul) {
	p.visited += h.visited
	p.cost.Scanned = p.visited / int64(len(p.lanes))
	p.cost.Commands += h.cost.Commands
	p.cost.Took += h.cost.Took
	p.heard(h.now)
}

// heard sets the server's clock, unless it has been seen further on.
func (p *pass) heard(now time.Time) {
	if now.After(p.now) {
		p.now = now
	}
}

// done reports whether there is nothing left to walk over.
func (p *pass) done() bool {
	return !slices.ContainsFunc(p.lanes, func(l *lane) bool { return !l.done() })
}

// complete reports whether the whole keyspace has been walked over.
func (p *pass) complete() bool {
	return p.done() && !slices.ContainsFunc(p.lanes, func(l *lane) bool { return l.endless })
}

// link sends commands to a server and keeps account of them.
type link struct {
	rdb  redis.UniversalClient
	cost Cost
}

// send executes a pipeline. Answers that concern a single key (it has another
// type, it may not be read) stay with their commands; anything else that went
// wrong is returned.
func (l *link) send(ctx context.Context, what string, p redis.Pipeliner) error {
	cmds, err := l.exec(ctx, p)
	if err == nil {
		return nil
	}
	if !answered(cmds) {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, c := range cmds {
		if err := c.Err(); err != nil && !errors.Is(err, redis.Nil) && !wrongType(err) && !refused(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// answered reports whether the commands of a pipeline that failed have got as far
// as having outcomes of their own. go-redis leaves them without when it is turned
// away at the door: a password that no longer counts, a user switched off.
func answered(cmds []redis.Cmder) bool {
	return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil })
}

// exec executes a pipeline and books what it cost.
func (l *link) exec(ctx context.Context, p redis.Pipeliner) ([]redis.Cmder, error) {
	begin := time.Now()
	cmds, err := p.Exec(ctx)
	l.cost.Took += time.Since(begin)
	l.cost.Commands += int64(len(cmds))
	return cmds, err
}

// wrongType reports whether a key turned out to have another type.
func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// refused reports whether a server does not know a command, or does not let
// this user send it.
func refused(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command"))
}
