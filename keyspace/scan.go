package keyspace

import (
	"context"
	"fmt"
	"strings"
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
// refuses SCAN. Keys that may not be read are passed over.
func (s *Scanner) Scan(ctx context.Context) (Snapshot, error) {
	w, err := s.walk(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	r := s.reader()
	seen := make(picture)
	var cost Cost

	// The server walks over the next page while this page is being decoded.
	group, ctx := errgroup.WithContext(ctx)
	pages := make(chan page, 1)
	group.Go(func() error {
		defer close(pages)
		return w.run(ctx, pages)
	})
	group.Go(func() error {
		for p := range pages {
			locks, err := r.sift(ctx, p.refs)
			if err != nil {
				return err
			}
			seen.add(locks)
			cost = p.cost.plus(r.cost)
			s.opts.Progress(cost)
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{At: w.now, Locks: seen.locks(), Complete: !w.gaveUp, Cost: cost, Server: w.server}, nil
}

func (s *Scanner) reader() *reader {
	return &reader{
		link:    link{rdb: s.rdb},
		formats: s.opts.Formats,
		atLeast: s.opts.MinConfidence,
		node:    s.node,
		db:      s.opts.DB,
		blind:   make(map[string]bool),
	}
}

// Bounds of one SCAN and of a whole walk.
const (
	firstCount = 250                    // of the first SCAN
	minCount   = 50                     // however slow the server
	maxCount   = 1000                   // more stalls everybody else for milliseconds
	callTime   = 400 * time.Microsecond // what a SCAN may take the server
	maxRounds  = 4                      // times the size of the keyspace, before a walk gives up
	roundSlack = 10_000                 // keys by which a small keyspace may grow meanwhile
)

// walk is one pass over a keyspace: a SCAN for each type of key that a format
// lives in, and for each glob, in turn. The server thus names no key that is
// of no interest, at the price of visiting each key once for each type.
type walk struct {
	link
	server Server
	now    time.Time // the server's clock at the last page
	count  int64     // of the next SCAN
	chains []chain   // those still under way; the first is next
	share  int64     // number of chains at the start
	gaveUp bool
}

// chain is one series of SCANs.
type chain struct {
	typ, glob string
	cursor    uint64
	visited   int64
}

// page is some keys, and what it has cost to come this far.
type page struct {
	refs []ref
	cost Cost
}

// walk begins a pass.
func (s *Scanner) walk(ctx context.Context) (*walk, error) {
	w := &walk{link: link{rdb: s.rdb}, server: Server{Addr: s.node}, count: firstCount}
	if err := w.survey(ctx); err != nil {
		return nil, err
	}
	globs := s.opts.Match
	if len(globs) == 0 {
		globs = []string{""}
	}
	for _, typ := range catalogue(s.opts.Formats).types() {
		for _, glob := range globs {
			w.chains = append(w.chains, chain{typ: typ, glob: glob})
		}
	}
	w.share = int64(len(w.chains))
	return w, nil
}

// survey asks the server for its clock, the number of its keys, and what it
// says of itself. All but the clock may be refused.
func (w *walk) survey(ctx context.Context) error {
	p := w.rdb.Pipeline()
	clock := p.Time(ctx)
	size := p.DBSize(ctx)
	infos := []*redis.StringCmd{p.Info(ctx, "server"), p.Info(ctx, "replication")}
	if _, err := w.exec(ctx, p); err != nil && clock.Err() != nil {
		return fmt.Errorf("ask the server for its time: %w", clock.Err())
	}
	w.now = clock.Val()
	w.cost.Keys = size.Val()
	for _, info := range infos {
		w.server.describe(info.Val())
	}
	return nil
}

// describe fills in what a section of INFO tells.
func (s *Server) describe(info string) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch name {
		case "redis_version":
			s.Version = value
		case "redis_mode":
			s.Mode = value
		case "role":
			s.Role = value
		}
	}
}

// run sends all pages and returns when the walk is over.
func (w *walk) run(ctx context.Context, pages chan<- page) error {
	for !w.done() {
		p, err := w.next(ctx)
		if err != nil {
			return err
		}
		select {
		case pages <- p:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// done reports whether there is nothing left to walk over.
func (w *walk) done() bool { return len(w.chains) == 0 }

// next reads a page, which may be empty. On error the walk is lost.
func (w *walk) next(ctx context.Context) (page, error) {
	c := w.chains[0]
	p := w.rdb.Pipeline()
	before := p.Time(ctx)
	scan := p.ScanType(ctx, c.cursor, c.glob, w.count, c.typ)
	after := p.Time(ctx)
	if _, err := w.exec(ctx, p); err != nil {
		return page{}, fmt.Errorf("scan keys: %w", err)
	}
	var keys []string
	keys, c.cursor = scan.Val()
	c.visited += w.count
	w.turn(c)
	w.now = after.Val()
	w.count = nextCount(w.count, after.Val().Sub(before.Val()))

	refs := make([]ref, len(keys))
	for i, key := range keys {
		refs[i] = ref{key, c.typ}
	}
	return page{refs: refs, cost: w.cost}, nil
}

// turn puts the chain at the end of the row, or takes it out when it is
// through, and reckons up how much of the keyspace has been visited.
func (w *walk) turn(c chain) {
	w.chains = w.chains[1:]
	endless := w.cost.Keys > 0 && c.visited > maxRounds*w.cost.Keys+roundSlack
	switch {
	case c.cursor != 0 && !endless:
		w.chains = append(w.chains, c)
	case endless:
		w.gaveUp = true
	}
	through := w.share - int64(len(w.chains))
	visited := through * w.cost.Keys
	for _, c := range w.chains {
		visited += min(c.visited, w.cost.Keys)
	}
	w.cost.Scanned = visited / w.share
}

// nextCount fits COUNT to what a call took the server, by the server's clock.
func nextCount(count int64, took time.Duration) int64 {
	fit := 2 * count
	if took > 0 {
		fit = count * int64(callTime) / int64(took)
	}
	fit = min(max(fit, count/2), 2*count)
	return min(max(fit, minCount), maxCount)
}

// exec executes a pipeline and books what it cost.
func (l *link) exec(ctx context.Context, p redis.Pipeliner) ([]redis.Cmder, error) {
	begin := time.Now()
	cmds, err := p.Exec(ctx)
	l.cost.Took += time.Since(begin)
	l.cost.Commands += int64(len(cmds))
	return cmds, err
}

// plus adds up what two links have cost. The progress is that of one of them.
func (c Cost) plus(d Cost) Cost {
	return Cost{
		Scanned:  c.Scanned + d.Scanned,
		Keys:     c.Keys + d.Keys,
		Commands: c.Commands + d.Commands,
		Took:     c.Took + d.Took,
	}
}
