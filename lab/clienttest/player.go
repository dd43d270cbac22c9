package clienttest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"locktop/loadgen/external"
	"locktop/loadgen/oracle"
)

// Times of a player.
const (
	// orderWait is how long a request may wait for the lock: shorter than a lease, and clearly
	// longer than untilBroken, so that a client that tries again always has the time for it.
	orderWait   = orderTTL * 3 / 4
	untilBroken = orderTTL * 2 / 5 // from a command to the loss of its reply and its connection
	calm        = 3 * time.Millisecond
	// resting is how long a client may take until it sends its next command or answers. After
	// it the client makes a pause of its own, and the others may go on.
	resting = 40 * time.Millisecond
	// mostOrdered bounds the commands of one request that are ordered. The others, as those of
	// a client that polls, go on at once.
	mostOrdered = 4
)

// player is a client process whose commands wait until they are chosen.
type player struct {
	name    string
	nodes   int
	process *external.Process
	wires   []*wire
	hello   external.Hello
	script  []op // what is left of its play

	mu      sync.Mutex
	free    bool // commands go on at once
	held    []*message
	ordered int      // commands of the request that were held
	last    *message // that was chosen
	loose   int      // commands of a request beyond mostOrdered
	own     int      // commands without a request
	asking  bool
	roused  time.Time     // when it last could go on: after a request, a reply or a freeze
	took    time.Duration // from a request until its first reply; 0: none yet
	changed chan struct{} // capacity 1

	stopped bool // by freeze
	late    bool // the reply to its newest command has arrived while it was stopped
	dead    bool
	hurt    bool // a fault struck it during its request
	answer  *reply
	first   *claim
	second  *claim
}

// reply is the result of a request.
type reply struct {
	o     op
	asked time.Time
	lease *external.Lease
	err   error
	end   time.Time // of a new lease, from player.certain
}

// claim is a hold, as the client reported it.
type claim struct {
	player  *player
	lease   *external.Lease
	shared  bool
	asked   time.Time
	granted time.Time
	left    bool // released, or its client was killed

	reported time.Time // end of the lease when it was granted
	certain  time.Time // the same, from player.certain
}

// end returns the end of the lease: not later than for the client, also on a busy machine, unless
// the client has prolonged it.
func (c *claim) end() time.Time {
	if d := c.lease.Deadline(); d.After(c.reported) || d.Before(c.certain) {
		return d
	}
	return c.certain
}

// valid reports whether the client says that it has the lock.
func (c *claim) valid() bool {
	return c != nil && !c.left && c.lease.Valid() && time.Now().Before(c.end())
}

func startPlayer(number int, commandLine string, servers []string) (*player, error) {
	p := &player{name: oracle.ClientLabel(number + 1), nodes: len(servers), free: true, changed: make(chan struct{}, 1)}
	var urls []string
	for i, server := range servers {
		w, err := openWire(i+1, server, p.arrived, p.rouse)
		if err != nil {
			p.close()
			return nil, err
		}
		p.wires = append(p.wires, w)
		urls = append(urls, (&url.URL{Scheme: "redis", Host: w.Addr()}).String())
	}
	var err error
	p.process, err = external.Start(external.Options{
		Command: commandLine, URLs: urls, Client: p.name, Leeway: 2 * slack, Excused: func(time.Time) bool { return true },
	})
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *player) close() {
	p.release()
	if p.process != nil {
		p.process.Kill()
	}
	for _, w := range p.wires {
		_ = w.Close()
	}
}

// release lets all commands go on, from now on.
func (p *player) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = true
	for _, c := range p.held {
		c.fate <- delivered
	}
	p.held = nil
}

// arrived decides whether a command is held back.
func (p *player) arrived(c *message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dead:
		c.fate <- vanished
		return
	case p.free || slices.Contains(setUp, c.words[0]):
	case !p.asking:
		p.own++
	case p.ordered >= mostOrdered*p.nodes:
		p.loose++
	default:
		p.ordered++
		p.held = append(p.held, c)
		slices.SortStableFunc(p.held, func(a, b *message) int { return a.node - b.node })
		p.wake()
		return
	}
	c.fate <- delivered
}

func (p *player) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// next returns the command that is held back first, nil if there is none, and whether the
// client has answered.
func (p *player) next() (c *message, asking bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) > 0 {
		c = p.held[0]
	}
	return c, p.asking
}

// take is next for a command whose fate is decided.
func (p *player) take() *message {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) == 0 {
		return nil
	}
	c := p.held[0]
	p.held = p.held[1:]
	return c
}

// quiet waits until the client waits for a command or for a request, and reports whether it rests
// instead.
func (p *player) quiet(ctx context.Context, within time.Duration) (rests bool) {
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		if c, asking := p.next(); c != nil || !asking {
			pause := time.NewTimer(calm) // another one may follow, as of several nodes
			select {
			case <-pause.C:
				return false
			case <-p.changed:
				pause.Stop()
				continue
			}
		}
		select {
		case <-p.changed:
		case <-limit.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// repeats reports whether a command is the one of the same request that was chosen before, as of a
// client that polls.
func (p *player) repeats(c *message) bool {
	same := 2 // words: the name and the key; the value may be a new token
	if strings.HasPrefix(c.words[0], "EVAL") {
		same = 4
	}
	return p.last != nil && p.ordered > 1 && slices.Equal(p.last.words[:min(same, len(p.last.words))], c.words[:min(same, len(c.words))])
}

// complete reports whether the player has no step left.
func (p *player) complete() bool {
	c, asking := p.next()
	return p.dead || len(p.script) == 0 && c == nil && !asking
}

// ask sends the next request of the play.
func (p *player) ask(ctx context.Context, o op, request func(context.Context) (*external.Lease, error)) {
	p.mu.Lock()
	p.asking, p.ordered, p.roused = true, 0, time.Now()
	p.mu.Unlock()
	p.hurt = false
	asked := time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(ctx, orderWait+answerWithin)
		defer cancel()
		l, err := request(ctx)
		r := &reply{o, asked, l, err, p.certain(l)}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asking, p.answer = false, r
		p.wake()
	}()
}

// rouse records that the client can go on now.
func (p *player) rouse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.took == 0 {
		p.took = now.Sub(p.roused)
	}
	p.roused = now
}

// request records that the client gets a request now.
func (p *player) request() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roused, p.took = time.Now(), 0
}

// certain returns the end of a lease that the client has just reported, if it measured it when
// it could go on last. l may be nil.
func (p *player) certain(l *external.Lease) time.Time {
	if l == nil {
		return time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roused.Add(time.Until(l.Latest()))
}

// answered returns the result of a request, once.
func (p *player) answered() *reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.answer
	p.answer = nil
	return r
}

func (p *player) freeze() error {
	p.stopped = true
	return p.process.Freeze()
}

func (p *player) thaw() {
	if p.stopped {
		p.rouse()
		_ = p.process.Continue() // fails if the client is dead
		p.stopped = false
	}
}

// text describes the result of a request.
func (r *reply) text(p *player) string {
	what := map[op]string{opLock: "lock", opRead: "lock for reading", opRelock: "lock", opExtend: "extend", opUnlock: "unlock"}[r.o]
	switch {
	case errors.Is(r.err, external.ErrHeld):
		return what + ": refused"
	case errors.Is(r.err, external.ErrLost):
		return what + ": lost"
	case r.err != nil:
		return what + ": " + shortened(r.err.Error(), 60)
	case r.lease != nil && r.o != opUnlock:
		text := fmt.Sprintf("%s: ok, valid for %d ms", what, max(time.Until(r.lease.Deadline()).Milliseconds(), 0))
		if p.hello.Fences {
			text += fmt.Sprintf(", fence %d", r.lease.Fence())
		}
		return text
	}
	return what + ": ok"
}

// die ends the client like a crash. Its commands that have not run never do.
func (p *player) die() {
	p.process.Kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for _, c := range p.held {
		c.fate <- vanished
	}
	p.held = nil
}
