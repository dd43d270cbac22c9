package proofs

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/formats"
)

// began is the begin of a simulation.
var began = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// style is how the clients of a simulation behave.
type style struct {
	name     string
	format   string
	token    func(client, try int, r *rand.Rand) string // of each try
	perLock  bool                                       // one token for all tries of an acquire
	newConns bool                                       // each command has a connection of its own
}

func random16(r *rand.Rand) string {
	raw := make([]byte, 16)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return base64.StdEncoding.EncodeToString(raw)
}

var styles = []style{
	{name: "a token for each acquire", format: "redsync", perLock: true, token: func(_, _ int, r *rand.Rand) string { return random16(r) }},
	{name: "a token for each try", format: "redsync", token: func(_, _ int, r *rand.Rand) string { return random16(r) }},
	{name: "one flag for all", format: "set-nx", token: func(int, int, *rand.Rand) string { return "1" }},
	{name: "a process number, and a connection for each command", format: "set-nx", newConns: true, token: func(client, _ int, _ *rand.Rand) string { return strconv.Itoa(4700 + client) }},
}

// pair is a holder, and the waiter that it blocks.
type pair struct{ holder, waiter string }

// simulation is a lock for which clients poll. Its clients are named by their address.
type simulation struct {
	style
	r       *rand.Rand
	ledger  *contention.Ledger
	now     time.Duration
	clients []*client
	conns   int
	stale   time.Duration // how long ago what a read shows was so
	was     []state       // of the lock
	holder  *client       // nil = the lock is free
	blame   *client       // the last holder
	truth   map[pair]time.Duration
}

// state is the token of a lock from a time on; "" = it is free.
type state struct {
	at    time.Duration
	token string
}

// client is a client of a simulation. Its next step is due at a time.
type client struct {
	name    string // its address
	due     time.Duration
	token   string
	tries   int
	waits   bool
	counted time.Duration // up to this, the truth has its wait
}

const simulated = "lock:a"

func between(r *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration((0.5 + r.Float64()) * float64(mean))
}

func (s *simulation) at() time.Time { return began.Add(s.now) }

// send gives the ledger a command of a client.
func (s *simulation) send(c *client, args ...string) {
	addr := c.name
	if s.newConns {
		s.conns++
		addr = fmt.Sprintf("10.0.0.1:%d", 20_000+s.conns)
	}
	s.ledger.Command(s.at(), addr, 0, args)
}

// run simulates for a while. lag is the longest time between a change and its read.
func (s *simulation) run(until, poll, hold, think, lag time.Duration) {
	reads := []time.Duration{0}
	for {
		c := slices.MinFunc(s.clients, func(a, b *client) int { return cmp.Compare(a.due, b.due) })
		for len(reads) > 0 && reads[0] <= min(c.due, until) {
			s.now, reads = reads[0], reads[1:]
			s.read()
		}
		if s.now = min(c.due, until); c.due > until {
			break
		}
		before := s.holder
		switch {
		case s.holder == c:
			s.send(c, "evalsha", "e950", "1", simulated, c.token)
			s.ledger.Command(s.at(), "", 0, []string{"DEL", simulated})
			s.holder, c.tries = nil, 0
			c.due += between(s.r, think)
		case s.try(c):
			c.due += between(s.r, hold)
		default:
			c.due += between(s.r, poll)
		}
		if s.holder != before {
			token := ""
			if s.holder != nil {
				token = s.holder.token
			}
			s.was = append(s.was, state{s.now, token})
		}
		if at := s.now + s.stale + time.Duration(s.r.Float64()*float64(lag)); s.holder != before && (len(reads) == 0 || reads[len(reads)-1] < at) {
			reads = append(reads, at)
		}
	}
	s.settle()
	s.ledger.Monitored(contention.Span{From: began, Until: s.at()})
	s.read()
}

// read gives the ledger the lock as it is.
func (s *simulation) read() {
	token := ""
	for _, was := range s.was {
		if was.at+s.stale <= s.now {
			token = was.token
		}
	}
	snap, l := keyspace.Snapshot{At: s.at()}, keyspace.Lock{Key: simulated, Format: s.format, Kind: keyspace.Mutex}
	if token != "" {
		l.Holders = []keyspace.Holder{{ID: token, Depth: 1}}
	}
	if token != "" || s.now == 0 {
		snap.Locks = []*keyspace.Lock{&l}
	}
	s.ledger.Snapshot(snap)
}

// try lets a client try, and reports whether it holds the lock then.
func (s *simulation) try(c *client) bool {
	if c.tries == 0 || !s.perLock {
		c.token = s.token(slices.Index(s.clients, c), c.tries, s.r)
	}
	c.tries++
	s.send(c, "set", simulated, c.token, "nx", "px", "5000")
	if s.holder != nil {
		if !c.waits {
			c.waits, c.counted = true, s.now
		}
		return false
	}
	s.settle()
	s.holder, s.blame, c.waits = c, c, false
	return true
}

// settle adds the waits up to now to the truth.
func (s *simulation) settle() {
	name := func(c *client) string {
		if s.newConns { // its address says nothing
			return c.token
		}
		return c.name
	}
	for _, c := range s.clients {
		if c.waits {
			s.truth[pair{name(s.blame), name(c)}] += s.now - c.counted
			c.counted = s.now
		}
	}
}

// The waits that MONITOR shows are those of the clients, whatever tokens and connections they
// use, and each is blamed on the hold that caused it.
func TestTheWaitsOfPollingClientsAreSeen(t *testing.T) {
	t.Parallel()
	for _, how := range styles {
		for k, n := range []int{2, 8, 64} {
			for j, poll := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond} {
				if j != k && !testtier.InLong() {
					continue
				}
				t.Run(fmt.Sprintf("%s, %d clients, every %v", how.name, n, poll), func(t *testing.T) {
					t.Parallel()
					s := simulation{style: how, r: rand.New(rand.NewPCG(uint64(n), uint64(poll))), ledger: contention.NewLedger(formats.All()), truth: make(map[pair]time.Duration)}
					for i := range n {
						name := fmt.Sprintf("10.0.0.%d:4711", 10+i)
						s.clients = append(s.clients, &client{name: name, due: time.Duration(i+1) * time.Millisecond})
					}
					s.run(20*time.Second, poll, 30*time.Millisecond, 20*time.Millisecond, 3*time.Millisecond)
					s.check(t)
				})
			}
		}
	}
}

// On a busy machine a watch hears late of changes. A read that shows a free lock, while MONITOR has
// shown the attempt of the next holder, does not let another client succeed.
func TestReadsThatAreLateBlameNoOtherClient(t *testing.T) {
	t.Parallel()
	s := simulation{style: styles[0], stale: 50 * time.Millisecond, r: rand.New(rand.NewPCG(1, 2)), ledger: contention.NewLedger(formats.All()), truth: make(map[pair]time.Duration)}
	for i := range 8 {
		s.clients = append(s.clients, &client{name: fmt.Sprintf("10.0.0.%d:4711", 10+i), due: time.Duration(i+1) * time.Millisecond})
	}
	s.run(20*time.Second, 20*time.Millisecond, 300*time.Millisecond, 20*time.Millisecond, 3*time.Millisecond)
	s.check(t)
}

// check compares the report with the truth.
func (s *simulation) check(t *testing.T) {
	t.Helper()
	var truth, seen, wrong time.Duration
	got := make(map[pair]time.Duration)
	for _, w := range s.ledger.Report().Waits {
		got[pair{w.Holder, w.Waiter}] += w.Waited
		seen += w.Waited
	}
	for p, want := range s.truth {
		truth += want
		wrong += (got[p] - want).Abs()
	}
	check.True(t, truth != 0 && (seen-truth).Abs() <= truth/50 && wrong <= truth/20,
		"%v of waiting are seen, want %v; %v are blamed on others", seen, truth, wrong)
}
