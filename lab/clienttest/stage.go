package clienttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/external"
)

// slack is how long two leases must overlap to count, because replies take time.
const slack = 10 * time.Millisecond

// asker is the number of the client that asks at the end.
const asker = 2

// stage is servers with three clients, on which one order after the other runs.
type stage struct {
	*rig
	play    play
	players [3]*player
	key     string
	keys    int // so far

	claims  []*claim // of this order
	steps   []Step
	finding string
	newest  *player       // whose command ran last
	waited  time.Duration // on purpose, in this step
	slow    bool          // a step took so long that leases may have ended without a fault
}

// Step is a row of the table of a counterexample.
type Step struct {
	Client  string `json:"client"`
	Fault   string `json:"fault,omitempty"`
	Command string `json:"command,omitempty"` // that ran; may hold text of the client
	Reply   string `json:"reply,omitempty"`
	Result  string `json:"result,omitempty"` // of the request
}

func openStage(ctx context.Context, p profile, nodes int, on string) (*stage, error) {
	s := &stage{rig: &rig{ctx: ctx, options: Options{Server: on}, profile: p, ttl: orderTTL, began: time.Now()}}
	for range nodes {
		if err := s.open(oneServer); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// close ends all clients and servers.
func (s *stage) close() {
	for _, p := range s.players {
		if p != nil {
			p.close()
		}
	}
	s.rig.close()
}

// ready makes the stage like new: no key, and three clients that are connected.
func (s *stage) ready() error {
	for i, p := range s.players {
		if p == nil || p.dead || p.process.Err() != nil {
			if p != nil {
				p.close()
			}
			var err error
			if p, err = startPlayer(i, s.profile.Command, s.servers); err != nil {
				return err
			}
			s.players[i] = p
			if p.hello, err = p.process.Hello(s.ctx); err != nil {
				return err
			}
			p.hurt = true
		}
		if p.hurt {
			if err := s.warm(p); err != nil {
				return err
			}
		}
	}
	for _, rdb := range s.admin {
		if err := rdb.FlushAll(s.ctx).Err(); err != nil {
			return err
		}
	}
	s.keys++
	s.key = fmt.Sprintf("%s:%d", key, s.keys)
	s.claims, s.steps, s.finding, s.newest, s.slow = nil, nil, "", nil, false
	for i, p := range s.players[:asker] {
		p.mu.Lock()
		p.free, p.asking, p.answer, p.loose, p.own = false, false, nil, 0, 0
		p.mu.Unlock()
		p.first, p.second, p.last, p.late = nil, nil, nil, false
		p.script = nil
		for _, o := range s.play.scripts[i] {
			if o != opExtend || s.profile.Extends {
				p.script = append(p.script, o)
			}
		}
	}
	return nil
}

// warm lets a client make its requests once, so that it is connected and its scripts are known.
func (s *stage) warm(p *player) error {
	var last error
	for end := time.Now().Add(answerWithin); time.Now().Before(end) && s.ctx.Err() == nil; s.pauseFor(slack) {
		last = s.once(p)
		if last == nil {
			p.hurt = false
			return nil
		}
		if p.process.Err() != nil {
			return p.process.Err()
		}
	}
	return errors.Join(last, s.ctx.Err())
}

func (s *stage) once(p *player) error {
	s.keys++
	ctx, cancel := context.WithTimeout(s.ctx, answerWithin)
	defer cancel()
	for _, read := range []bool{false, true} {
		if read && !s.profile.has("rw") {
			continue
		}
		l, err := p.process.Lock(ctx, external.Terms{Keys: []string{fmt.Sprintf("%s:warm:%d", key, s.keys)}, TTL: orderTTL, Wait: 2 * orderTTL, Read: read, Permits: s.play.permits})
		if err != nil {
			return err
		}
		if s.profile.Extends {
			_ = l.Extend(ctx, orderTTL) // its result is not that of the play
		}
		if err := l.Unlock(ctx); err != nil && !errors.Is(err, external.ErrLost) { // the machine may be slow
			return err
		}
	}
	return nil
}

// pauseFor waits, at most until the run ends.
func (s *stage) pauseFor(d time.Duration) {
	defer s.waits(time.Now())
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// waits records a time for which a step waits on purpose, and ends now.
func (s *stage) waits(since time.Time) { s.waited += time.Since(since) }

// quiet waits until a client waits for a command or for a request, or rests.
func (s *stage) quiet(p *player, within time.Duration) {
	began := time.Now()
	if p.quiet(s.ctx, within) {
		s.waits(began)
	}
}

// option is a choice with the server of the command that it passes on, 0 if that is not known.
type option struct {
	choice
	node int
}

// options returns the choices that there are: first those without a fault.
func (s *stage) options(faults int) (all []option) {
	idle := 0 // players that only repeat their newest command, which changed nothing
	for i, p := range s.players[:asker] {
		c, _ := p.next()
		switch {
		case p.complete():
		case s.newest == p && !p.stopped && c != nil && p.repeats(c):
			idle = i + 1
		default:
			o := option{choice{i, noFault}, 0}
			if c != nil && !p.stopped {
				o.node = c.node
			}
			all = append(all, o)
		}
	}
	if len(all) == 0 && idle > 0 {
		all = append(all, option{choice{idle - 1, noFault}, 0})
	}
	if faults <= 0 {
		return all
	}
	over := len(all) == 0
	for i, p := range s.players[:asker] {
		c, asking := p.next()
		begun := asking || p.first != nil || c != nil
		switch {
		case p.dead || p.stopped:
			continue
		case over: // only a holder may still crash
			if p.first.valid() || p.second.valid() {
				all = append(all, option{choice{i, killed}, 0})
			}
			continue
		case !p.complete():
			all = append(all, option{choice{i, lostReply}, 0}, option{choice{i, lateReply}, 0})
			if s.play.nodes > 1 {
				all = append(all, option{choice{i, lostCommand}, 0})
			}
		}
		if begun && (!p.complete() || p.first.valid() || p.second.valid()) {
			all = append(all, option{choice{i, killed}, 0}, option{choice{i, frozen}, 0})
		}
	}
	return all
}

// step takes a step.
func (s *stage) step(c choice) {
	p := s.players[c.client]
	row := Step{Client: p.name, Fault: faultTexts[c.fault]}
	s.steps = append(s.steps, row)
	began := time.Now()
	s.waited = 0
	switch {
	case c.fault == killed:
		p.die()
		s.waits(began) // the end of a process takes its time
		for _, h := range s.claims {
			h.left = h.left || h.player == p
		}
	case c.fault == frozen:
		_ = p.freeze() // fails if the client is dead
		s.pauseFor(orderTTL + slack)
	case p.stopped && p.late:
		p.late = false
		p.thaw()
		row.Reply = "arrives"
		s.quiet(p, resting)
	default:
		if p.stopped {
			p.thaw()
			s.pauseFor(slack) // first it notices what has ended meanwhile, like its patience
		}
		s.goOn(p, c.fault, &row)
	}
	s.steps[len(s.steps)-1].Command, s.steps[len(s.steps)-1].Reply = row.Command, row.Reply
	s.slow = s.slow || time.Since(began)-s.waited > orderTTL/8
	s.collect()
	s.judge()
}

// goOn lets a client make its next request, unless it waits for an answer, and passes on its
// next command.
func (s *stage) goOn(p *player, f fault, row *Step) {
	cmd, asking := p.next()
	switch {
	case cmd != nil:
	case asking: // a pause of its own
		s.quiet(p, orderWait+resting)
	default:
		if s.collect(); len(p.script) == 0 { // its answer came meanwhile
			return
		}
		s.begin(p)
		s.quiet(p, resting)
	}
	if cmd = p.take(); cmd == nil {
		return
	}
	row.Command = cmd.text()
	if s.play.nodes > 1 {
		row.Command = fmt.Sprintf("node %d: %s", cmd.node, row.Command)
	}
	p.hurt = p.hurt || f != noFault
	fate := delivered
	switch f {
	case lateReply:
		_ = p.freeze() // fails if the client is dead
	case lostReply:
		fate = unheard
	case lostCommand:
		fate = vanished
	}
	cmd.fate <- fate
	p.last, s.newest = cmd, p
	select {
	case <-cmd.over:
		row.Reply = shortened(cmd.reply, 40)
	case <-time.After(resting): // a command that blocks
		s.waited += resting
	case <-s.ctx.Done():
	}
	switch f {
	case lateReply:
		p.late = true
		s.pauseFor(orderTTL + slack)
		return
	case lostReply:
		s.pauseFor(untilBroken)
		close(cmd.broken)
	}
	s.quiet(p, resting)
}

// begin sends the next request of a client.
func (s *stage) begin(p *player) {
	o := p.script[0]
	p.script = p.script[1:]
	switch o {
	case opExtend:
		l := p.first.lease
		p.ask(s.ctx, o, func(ctx context.Context) (*external.Lease, error) { return l, l.Extend(ctx, orderTTL) })
	case opUnlock:
		h := p.first
		if s.superseded(h, time.Now()) && p.hello.Tells {
			asked := time.Now()
			if !told(s.ctx, h.lease, tellWithin) {
				s.fail("The client did not tell %s of the loss within %s, although hello says that it tells.", p.name, humanize.Setting(tellWithin))
			}
			s.waits(asked)
		}
		h.left = true
		p.ask(s.ctx, o, func(ctx context.Context) (*external.Lease, error) { return h.lease, h.lease.Unlock(ctx) })
	default:
		t := s.play.terms(o, orderWait)
		t.Keys = []string{s.key}
		if o == opRelock {
			t.Wait = 0
		}
		p.ask(s.ctx, o, func(ctx context.Context) (*external.Lease, error) { return p.process.Lock(ctx, t) })
	}
}

// collect handles the answers of the clients.
func (s *stage) collect() {
	for _, p := range s.players[:asker] {
		if r := p.answered(); r != nil {
			last := &s.steps[len(s.steps)-1]
			text := r.text(p)
			if last.Client != p.name {
				text = p.name + " " + text
			}
			if last.Result != "" {
				last.Result += "; "
			}
			last.Result += text
			s.handle(p, r)
		}
	}
}

func (s *stage) handle(p *player, r *reply) {
	switch {
	case p.dead:
	case r.o == opExtend:
		if r.err == nil && s.superseded(p.first, r.asked) {
			s.fail("An extension of %s reported success, although another client had got the lock meanwhile.", p.name)
		}
	case r.o == opUnlock:
		s.unlocked(p, r)
	case r.err != nil:
		if r.o != opRelock {
			p.script = nil
		}
	default:
		h := &claim{player: p, lease: r.lease, shared: r.o == opRead, asked: r.asked, granted: time.Now(), reported: r.lease.Deadline(), certain: r.end}
		if r.o == opRelock {
			p.second = h
		} else {
			p.first = h
		}
		s.claims = append(s.claims, h)
		s.numbered(h)
	}
}

// end lets the third client ask, and waits until it has the lock.
func (s *stage) end() {
	for _, p := range s.players[:asker] {
		p.thaw()
		p.release()
	}
	c := s.players[asker]
	limit := orderTTL + margin
	asked := time.Now()
	done := make(chan reply, 1)
	go func() {
		t := s.play.terms(opLock, limit)
		t.Keys = []string{s.key}
		ctx, cancel := context.WithTimeout(s.ctx, limit+answerWithin)
		defer cancel()
		r := reply{o: opLock, asked: asked}
		for r.lease == nil && (time.Since(asked) < limit || r.err == nil) && ctx.Err() == nil && c.process.Err() == nil {
			t.Wait = max(limit-time.Since(asked), 0)
			c.request()
			r.lease, r.err = c.process.Lock(ctx, t)
		}
		r.end = c.certain(r.lease)
		done <- r
	}()
	release := time.After(orderTTL * 5 / 4)
	for tick := time.Tick(slack / 2); s.finding == ""; {
		select {
		case <-tick:
			s.judge()
		case <-release: // those that renew
			s.releaseAll()
		case r := <-done:
			s.finished(c, r)
			return
		}
	}
	s.releaseAll()
	s.finished(c, <-done)
}

// releaseAll releases what the clients have.
func (s *stage) releaseAll() {
	ctx, cancel := context.WithTimeout(s.ctx, answerWithin)
	defer cancel()
	for _, h := range s.claims {
		if !h.left && !h.player.dead {
			h.left = true
			_ = h.lease.Unlock(ctx) // its result is not judged
		}
	}
}

// clear ends the requests and holds of an order.
func (s *stage) clear() {
	for _, p := range s.players {
		p.thaw()
		p.release()
		for end := time.Now().Add(answerWithin); !p.dead; {
			if _, asking := p.next(); !asking {
				break
			}
			if time.Now().After(end) || s.ctx.Err() != nil {
				p.die()
			}
			s.pauseFor(slack / 10)
		}
		if r := p.answered(); r != nil && r.err == nil && r.lease != nil && r.o != opUnlock {
			s.claims = append(s.claims, &claim{player: p, lease: r.lease})
		}
	}
	s.releaseAll()
}
