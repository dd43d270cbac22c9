package keyspace

import (
	"math/rand/v2"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

// simulated is a server with clients, of which some are busy and one renews a lock.
type simulated struct {
	rng     *rand.Rand
	clients []simulatedClient
	now     time.Duration
	counts  bool // the server counts the commands of its clients
}

type simulatedClient struct {
	last     time.Duration // time of the last command
	command  string
	commands int64
	rate     float64  // commands per second
	mix      []string // commands of which it chooses
}

func simulate(seed uint64, clients, busy int, mix ...string) *simulated {
	s := &simulated{rng: rand.New(rand.NewPCG(seed, 1)), clients: make([]simulatedClient, clients)}
	s.now = time.Hour + time.Duration(s.rng.Int64N(int64(time.Second)))
	for i := range s.clients {
		c := &s.clients[i]
		c.command, c.last = "get", s.now-time.Duration(s.rng.Int64N(int64(time.Hour)))
		if i < busy {
			c.rate, c.mix = 1+30*s.rng.Float64(), mix
		}
	}
	return s
}

// pass lets time pass: the busy clients run commands.
func (s *simulated) pass(d time.Duration) {
	s.now += d
	for i := range s.clients {
		c := &s.clients[i]
		if c.rate == 0 {
			continue
		}
		for due := c.rate*d.Seconds() - s.rng.ExpFloat64(); due > 0; due -= s.rng.ExpFloat64() {
			s.run(i, c.mix[s.rng.IntN(len(c.mix))])
		}
	}
}

func (s *simulated) run(i int, command string) {
	c := &s.clients[i]
	c.last, c.command, c.commands = s.now, command, c.commands+1
}

// list is CLIENT LIST of some clients; nil: of all. Idle times are the differences of whole seconds.
func (s *simulated) list(ids []int64) []Client {
	if ids == nil {
		for i := range s.clients {
			ids = append(ids, int64(i+1))
		}
	}
	all := make([]Client, 0, len(ids))
	for _, id := range ids {
		c := s.clients[id-1]
		one := Client{ID: id, Command: c.command, Age: s.now.Truncate(time.Second), Idle: s.now.Truncate(time.Second) - c.last.Truncate(time.Second), Commands: -1}
		if s.counts {
			one.Commands = c.commands
		}
		all = append(all, one)
	}
	return all
}

func (s *simulated) clock() time.Time { return time.Unix(0, 0).Add(s.now) }

// investigate watches until a client is named or the lock has changed most times. Lists lie
// between the changes; reach is how long a change takes to reach the observer.
func (s *simulated) investigate(most int, period time.Duration, change func()) (Suspicion, *Suspects) {
	const reach, interval = 2 * time.Millisecond, 20 * time.Millisecond
	suspects := NewSuspects("string")
	for range most {
		for left := period; left >= interval; {
			pause := interval
			if suspects.IDs() == nil {
				pause = 5 * interval
			}
			s.pass(pause)
			left -= pause
			suspects.Idle(s.clock(), s.list(suspects.IDs()))
		}
		s.pass(time.Duration(s.rng.Int64N(int64(interval))))
		change()
		s.pass(reach)
		suspects.Changed(s.clock(), s.list(suspects.IDs()))
		if best := suspects.Best(); best.Named || best.Renewers != nil {
			return best, suspects
		}
	}
	return suspects.Best(), suspects
}

// Goal of the design: of 1,000 clients 100 are busy, with ordinary commands and those of other
// locks. Within three changes the client is named in 95 % of the trials, and another one never.
func TestTheClientThatRenewsIsNamedWithinThreeChanges(t *testing.T) {
	t.Parallel()
	named, changes, trials := 0, 0, uint64(testtier.Size(8, 60, 200))
	for trial := range trials {
		s := simulate(trial, 1000, 100, "get", "set", "hget", "evalsha", "incr", "publish")
		s.counts = trial%2 == 0
		const holder = 700
		got, _ := s.investigate(3, 4*time.Second, func() { s.run(holder-1, "evalsha") })
		switch {
		case got.Named && got.Client.ID == holder:
			named++
			changes += got.Changes
		case got.Named:
			t.Errorf("trial %d names client %d: %+v", trial, got.Client.ID, got)
		}
	}
	t.Logf("named in %d of %d trials, after %.2f changes", named, trials, float64(changes)/float64(max(named, 1)))
	check.True(t, named >= int(trials)*95/100, "named in %d of %d trials", named, trials)
}

// The client of the holder is not in the list, because its connection is another one each
// time, or because it is behind a server that speaks for it.
func TestNoneIsNamedIfTheClientCannotBeSeen(t *testing.T) {
	t.Parallel()
	for trial := range uint64(testtier.Size(3, 20, 20)) {
		s := simulate(trial, 300, 100, "get", "set", "hget", "evalsha")
		got, _ := s.investigate(15, 2*time.Second, func() {})
		check.True(t, !got.Named && got.Renewers == nil, "trial %d: %+v", trial, got)
	}
}

// A busy client that holds the lock may never be told from the others; another must not be
// named for it.
func TestABusyHolderIsNeverMistaken(t *testing.T) {
	t.Parallel()
	for trial := range uint64(testtier.Size(3, 20, 20)) {
		s := simulate(trial, 300, 100, "set", "evalsha", "get")
		got, _ := s.investigate(15, 2*time.Second, func() { s.run(5, "evalsha") })
		check.True(t, !got.Named && got.Renewers == nil || got.Named && got.Client.ID == 6, "trial %d: %+v", trial, got)
	}
}

// Two clients renew locks with the same period, one shortly before the other. Only one of
// them changes this lock.
func TestAClientThatRenewsAnotherLockShortlyBeforeIsNotNamed(t *testing.T) {
	t.Parallel()
	for trial := range uint64(testtier.Size(5, 20, 20)) {
		s := simulate(trial, 300, 30, "get", "set")
		got, _ := s.investigate(6, 2*time.Second, func() {
			s.run(200, "evalsha")
			s.pass(300 * time.Millisecond)
			s.run(100, "evalsha")
		})
		check.True(t, !got.Named || got.Client.ID == 101, "trial %d names %+v", trial, got)
	}
}

// Two clients renew the lock in turn: both are named, and none of them as its holder. One that renews
// it by EXPIRE may be a waiter.
func TestClientsThatRenewTheSameLockAreNamedTogether(t *testing.T) {
	t.Parallel()
	trials, found := testtier.Size(10, 40, 100), 0
	for trial := range uint64(trials) {
		for command, orders := range map[string][][]int{"evalsha": {{99, 199}, {99, 199, 199}}, "expire": {{99, 199}}, "pexpire": {{99}}} {
			for _, order := range orders {
				s := simulate(trial, 300, 30, "get", "set", "evalsha")
				s.counts = trial%2 == 0
				turn := 0
				got, _ := s.investigate(6, 2500*time.Millisecond, func() {
					s.run(order[turn%len(order)], command)
					turn++
				})
				n := len(got.Renewers)
				check.True(t, !got.Named && (n == min(len(order), 2) || n == 0), "trial %d, %s %v: %+v", trial, command, order, got)
				found += min(n, 1)
			}
		}
	}
	check.True(t, found >= 4*trials*85/100, "they are named in %d of %d trials", found, 4*trials)
}

// Ten clients renew other locks with the same period, each at a time of its own, and the
// holder cannot be seen. The lists lie so far apart that one of the ten may always run its
// command between those before and after a change.
func TestAClientInStepWithTheLockIsNotNamedIfItIsByChance(t *testing.T) {
	t.Parallel()
	const period, interval = 2 * time.Second, 100 * time.Millisecond
	for trial := range uint64(testtier.Size(10, 40, 40)) {
		s := simulate(trial, 300, 0)
		suspects := NewSuspects("string")
		phases := make([]int, 10)
		for i := range phases {
			phases[i] = s.rng.IntN(int(period / interval))
		}
		for step := range 8 * int(period/interval) {
			s.pass(interval)
			now := step % int(period/interval)
			for i, phase := range phases {
				if phase == now {
					s.run(100+i, "evalsha")
				}
			}
			if now == 5 && step > int(period/interval) {
				suspects.Changed(s.clock(), s.list(suspects.IDs()))
			} else {
				suspects.Idle(s.clock(), s.list(suspects.IDs()))
			}
			best := suspects.Best()
			check.Require(t, !best.Named && best.Renewers == nil, "trial %d names %+v", trial, best)
		}
	}
}

func TestAHolderThatDisconnectsIsNoSuspect(t *testing.T) {
	t.Parallel()
	s := simulate(1, 10, 0)
	suspects := NewSuspects("string")
	s.run(3, "set")
	suspects.Changed(s.clock(), s.list(nil))
	got := suspects.Best()
	check.Require(t, got.Client.ID == 4 && got.Left == 1, "it suspects %+v", got)
	s.pass(3 * time.Second)
	suspects.Changed(s.clock(), nil)
	got = suspects.Best()
	check.True(t, got.Client.ID == 0 && suspects.IDs() == nil, "it suspects %+v", got)
}
