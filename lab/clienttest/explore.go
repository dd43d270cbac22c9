package clienttest

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

// Bounds of [Exhaust].
const (
	mostFaults   = 2
	mostOrders   = 5000 // of a play, unless the options say otherwise
	confirmation = 3    // runs of an order that found something: two of them must find it
)

// ExhaustOptions describes a run of [Exhaust].
type ExhaustOptions struct {
	Commands []string // of the clients, for the shell
	Plays    []string // names; empty: all
	Server   string   // as in [Options]
	// Order is the ID of one order, which runs Repeat times. Empty: all orders.
	Order  string
	Repeat int // default 10
	Limit  int // of the orders of a play; default 5,000
	// Together is how many orders run at once, each on its own servers. Default 8.
	Together int
	// Progress is called after each order; nil: not at all. The calls do not overlap.
	Progress func(Exploring)
}

// Exploring is how far a run of [Exhaust] has come.
type Exploring struct {
	Client string
	Play   string
	Orders int // that ran
	Known  int // that are known and did not run yet
	Faults int // of the orders that run now
	Found  string
}

// Exhaust runs the commands of two clients in all orders, with at most two faults, and looks for
// the shortest order in which their library lets two of them in at once, loses a lock within
// its lease, leaves one without an end, or reports the release of a lock that another client
// had got. If ctx ends, it returns what was found so far, and the error of ctx.
func Exhaust(ctx context.Context, o ExhaustOptions) (Search, error) {
	if len(o.Commands) == 0 {
		return Search{}, errors.New("there is no client to test")
	}
	o.Repeat, o.Limit, o.Together = cmp.Or(o.Repeat, 10), cmp.Or(o.Limit, mostOrders), cmp.Or(o.Together, 8)
	name, err := serverName(ctx, o.Server)
	if err != nil {
		return Search{}, err
	}
	found := Search{Version: SearchVersion, Date: time.Now().UTC(), Server: name, TTL: Milliseconds(orderTTL), Faults: mostFaults}
	for _, command := range o.Commands {
		if ctx.Err() != nil {
			break
		}
		p := probe(ctx, command, o.Server)
		r := SearchResult{Client: p, Plays: []Played{}} // not null in JSON
		var best *Counterexample
		for _, pl := range plays() {
			if ctx.Err() != nil || p.Error != "" || len(o.Plays) > 0 && !slices.Contains(o.Plays, pl.name) {
				continue
			}
			if o.Order != "" {
				only, steps, err := parseOrder(o.Order)
				if err != nil {
					return Search{}, err
				}
				if only.name == pl.name {
					r.Plays = append(r.Plays, repeatOrder(ctx, p, pl, steps, o))
				}
				continue
			}
			played := explore(ctx, p, pl, o, best)
			best = cmp.Or(played.Found, best)
			r.Plays = append(r.Plays, played)
		}
		found.Clients = append(found.Clients, r)
	}
	return found, ctx.Err()
}

// node is the beginning of an order that has not run, with the choices after it that are left
// out, because another order has the same effect.
type node struct {
	begin order
	sleep []option
}

// search is the exploration of a play.
type search struct {
	options ExhaustOptions
	profile profile
	play    play

	mu       sync.Mutex
	more     *sync.Cond // something of what follows has changed
	faults   int        // of the orders of this level
	now      []node     // of this level, the newest last
	later    []node     // with one fault more
	busy     int
	result   Played
	best     *Counterexample // of another play
	most     int             // faults in an order
	shortest int             // of the counterexample: an order must have fewer steps
	over     bool
}

// explore runs the orders of a play: first those without a fault, then those with one, then
// those with two, until a level has a counterexample. With one of another play, only orders run
// that may be shorter.
func explore(ctx context.Context, p profile, pl play, o ExhaustOptions, best *Counterexample) Played {
	s := &search{options: o, profile: p, play: pl, result: Played{Play: pl.name, Title: pl.title, Orders: []int{}}, now: []node{{}}, most: mostFaults}
	s.more = sync.NewCond(&s.mu)
	if s.best = best; best != nil {
		s.most = best.Faults
	}
	s.lessThanBest()
	if s.result.Unsupported = pl.needs(p); s.result.Unsupported != "" {
		return s.result
	}
	began := time.Now()
	s.progress()
	stop := context.AfterFunc(ctx, func() { s.fail(ctx.Err()) })
	defer stop()
	var workers sync.WaitGroup
	for range o.Together {
		workers.Go(func() { s.work(ctx) })
	}
	workers.Wait()
	s.result.Left += len(s.now) + len(s.later)
	s.result.Took = Milliseconds(time.Since(began))
	return s.result
}

// fail ends the exploration.
func (s *search) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over, s.result.Error = true, err.Error()
	}
	s.more.Broadcast()
}

// work runs orders until there is none.
func (s *search) work(ctx context.Context) {
	st, err := openStage(ctx, s.profile, s.play.nodes, s.options.Server)
	if err != nil {
		s.fail(err)
		return
	}
	defer st.close()
	st.play = s.play
	for {
		n, ok := s.take()
		if !ok {
			return
		}
		if err := s.run(st, n); err != nil {
			s.fail(err)
			return
		}
	}
}

// take returns the next beginning.
func (s *search) take() (n node, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.over:
			return n, false
		case len(s.now) > 0 && s.ran() >= s.options.Limit:
			s.over = true
		case len(s.now) > 0:
			n = s.now[0] // the first ones differ early, so that they may be short
			s.now = s.now[1:]
			if len(n.begin) >= s.shortest {
				s.result.Left++
				continue
			}
			s.busy++
			return n, true
		case s.busy > 0:
			s.more.Wait()
			continue
		case s.result.Found != nil || s.faults == s.most || len(s.later) == 0:
			s.over = true
		default:
			s.faults++
			s.now, s.later = s.later, nil
			s.lessThanBest()
		}
		s.more.Broadcast()
	}
}

// lessThanBest bounds the orders of a level by the counterexample of another play.
func (s *search) lessThanBest() {
	s.shortest = math.MaxInt
	if s.best != nil && s.faults == s.best.Faults {
		s.shortest = len(s.best.taken())
	}
}

// ran returns the number of orders that ran.
func (s *search) ran() (n int) {
	for _, of := range s.result.Orders {
		n += of
	}
	return n
}

// run runs an order with a beginning, and again if it found something.
func (s *search) run(st *stage, n node) error {
	s.mu.Lock()
	bound := s.shortest
	s.mu.Unlock()
	p, err := st.try(n, s.most, bound)
	if err != nil {
		return err
	}
	seen := 1
	for runs := 1; p.finding != "" && runs < confirmation && seen < 2; runs++ {
		again, err := st.try(node{begin: p.taken}, s.most, math.MaxInt)
		if err != nil {
			return err
		}
		if again.finding != "" {
			seen, p.steps, p.finding = seen+1, again.steps, again.finding
		}
	}
	s.record(p, seen)
	return nil
}

func (s *search) record(p performance, seen int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.result
	s.busy--
	r.Together += p.together
	r.Own += p.own
	if p.slow && p.finding == "" {
		r.Slow++
	}
	switch {
	case p.other:
		r.Other++
	case p.same:
		r.Same++
	case p.long:
		r.Left++
	default:
		for len(r.Orders) <= s.faults {
			r.Orders = append(r.Orders, 0)
		}
		r.Orders[s.faults]++
	}
	if p.finding != "" && seen < 2 {
		r.Doubtful++
	}
	if p.finding != "" && seen >= 2 && len(p.taken) < s.shortest {
		s.shortest = len(p.taken)
		r.Found = &Counterexample{Order: s.play.name + "/" + p.taken.String(), Faults: p.taken.faults(), Steps: p.steps, Finding: p.finding, Seen: seen, Runs: seen}
	}
	for _, more := range p.more {
		if more.begin.faults() > s.faults {
			s.later = append(s.later, more)
		} else {
			s.now = append(s.now, more)
		}
	}
	s.progress()
	s.more.Broadcast()
}

// progress tells how far the exploration has come. s.mu must be held, except at the begin.
func (s *search) progress() {
	if s.options.Progress == nil {
		return
	}
	now := Exploring{Client: s.profile.Name, Play: s.play.name, Orders: s.ran(), Known: len(s.now) + len(s.later), Faults: s.faults}
	if s.result.Found != nil {
		now.Found = s.result.Found.Order
	}
	s.options.Progress(now)
}

// performance is one run of an order.
type performance struct {
	taken    order
	steps    []Step
	finding  string
	more     []node // beginnings that differ from the order in their last step, which is after the beginning of the order
	other    bool   // the beginning could not be repeated
	same     bool   // all choices were left out
	long     bool   // it is not shorter than the bound
	slow     bool   // the machine was too slow
	together int
	own      int
}

// try is perform, and again if nothing was found, and the machine was too slow or the order could
// not be repeated.
func (s *stage) try(n node, faults, bound int) (p performance, err error) {
	for range mostTries {
		p, err = s.perform(n, faults, bound)
		if err != nil || p.finding != "" || !p.slow && !p.other {
			break
		}
	}
	return p, err
}

// perform runs an order with a beginning, and goes on with the first choices until its end, or
// until it is not shorter than a bound.
func (s *stage) perform(n node, faults, bound int) (p performance, err error) {
	if err := s.ready(); err != nil {
		return p, err
	}
	defer s.clear()
	sleep := n.sleep
	for s.finding == "" && s.ctx.Err() == nil {
		depth := len(p.taken)
		all := s.options(faults - p.taken.faults())
		if depth < len(n.begin) {
			i := slices.IndexFunc(all, func(o option) bool { return o.choice == n.begin[depth] })
			if i < 0 {
				p.other = true
				return p, nil
			}
			s.step(all[i].choice)
			p.taken = append(p.taken, all[i].choice)
			continue
		}
		over := !slices.ContainsFunc(all, func(o option) bool { return o.fault == noFault })
		if !over && depth >= bound {
			p.long = true
			return p, nil
		}
		var tried []option
		var first *option
		for _, o := range all {
			if slices.Contains(sleep, o) {
				continue
			}
			if first == nil && o.fault == noFault {
				first = &o
			} else {
				p.more = append(p.more, node{append(slices.Clone(p.taken), o.choice), awake(slices.Concat(sleep, tried), o)})
			}
			tried = append(tried, o)
		}
		if over {
			break
		}
		if first == nil {
			p.same = true
			return p, nil
		}
		sleep = awake(sleep, *first)
		s.step(first.choice)
		p.taken = append(p.taken, first.choice)
	}
	if s.finding == "" && s.ctx.Err() == nil {
		s.end()
	}
	for _, c := range s.players[:asker] {
		c.mu.Lock()
		p.together, p.own = p.together+c.loose, p.own+c.own
		c.mu.Unlock()
	}
	p.steps, p.finding, p.slow = s.steps, s.finding, s.slow
	return p, s.ctx.Err()
}

// awake returns the options that are still left out after another one: their commands are on
// other servers, and so have the same effect before it as after it.
func awake(sleep []option, after option) (all []option) {
	for _, o := range sleep {
		if o.fault == noFault && after.fault == noFault && o.client != after.client && o.node > 0 && after.node > 0 && o.node != after.node {
			all = append(all, o)
		}
	}
	return all
}

// repeatOrder runs one order several times.
func repeatOrder(ctx context.Context, p profile, pl play, begin order, o ExhaustOptions) Played {
	r := Played{Play: pl.name, Title: pl.title, Orders: []int{}}
	if r.Unsupported = pl.needs(p); r.Unsupported != "" {
		return r
	}
	began := time.Now()
	fail := func(err error) Played {
		r.Error, r.Took = err.Error(), Milliseconds(time.Since(began))
		return r
	}
	st, err := openStage(ctx, p, pl.nodes, o.Server)
	if err != nil {
		return fail(err)
	}
	defer st.close()
	st.play = pl
	ran := 0
	var last performance
	for range o.Repeat {
		now, err := st.try(node{begin: begin}, begin.faults(), math.MaxInt)
		if err != nil {
			return fail(err)
		}
		ran++
		r.Together, r.Own = r.Together+now.together, r.Own+now.own
		if now.other {
			r.Other++
		}
		if now.finding == "" {
			if now.slow {
				r.Slow++
			}
			continue
		}
		last = now
		if r.Found == nil {
			r.Found = &Counterexample{Order: pl.name + "/" + begin.String(), Faults: begin.faults()}
		}
		r.Found.Seen++
	}
	if r.Found != nil {
		r.Found.Runs, r.Found.Steps, r.Found.Finding = ran, last.steps, last.finding
	}
	r.Orders = append(r.Orders, ran)
	r.Took = Milliseconds(time.Since(began))
	return r
}
