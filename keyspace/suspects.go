package keyspace

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// Suspects finds the client that changes a lock by coincidence: it compares the clients
// before and after each change of the lock. The client that holds the lock has run a
// command that writes at each change. Others have, too, now and then; how often is seen
// between the changes.
//
// Each list of clients is for one of Idle, Changed and Skip, in the order of the lists. It
// is not safe for concurrent use.
type Suspects struct {
	commands []string         // that can change the lock
	last     map[int64]Client // the previous list
	lastAt   time.Time
	all      map[int64]*suspect // also clients that are no suspects, before the second change
	changes  int                // since all clients were suspects
	previous Suspicion          // of the changes before that
	rates    []float64          // at the second change: of clients that had run commands that write, their number per second
	firstAt  time.Time          // of the first change
	rest     float64            // weight for a holder that is not in the lists
}

// NewSuspects returns the Suspects for a lock whose key has this type.
func NewSuspects(typ string) *Suspects {
	return &Suspects{commands: append(slices.Clone(renewCommands[:]), typeCommands[typ]...), all: make(map[int64]*suspect)}
}

// suspect is what is known of one client.
type suspect struct {
	client  Client
	command string        // at the first change: a library renews with one command; "" = no suspect
	hits    int           // changes at which it ran its command, or may have done so
	misses  int           // changes at which it did not
	absent  bool          // at one of these it ran no command: another client made the change
	sure    uint64        // the changes at which it certainly ran its command, a bit for each, if it rarely does between
	fresh   int           // of the hits: those at which it certainly ran a command
	weight  float64       // how much more likely the changes are if it made them
	closest time.Duration // of the certain hits: the shortest time between the lists before and after the change

	quiet  time.Duration // observed without a change
	noise  int           // times that it ran a command that writes meanwhile
	lists  int           // lists in that time
	active int           // of these: those with an idle time of 0
}

// Suspicion is the client that probably holds a lock, and why.
type Suspicion struct {
	Client  Client
	Changes int  // number of changes that were compared
	Hits    int  // changes at which this client had just run a command that writes
	Left    int  // clients that cannot be excluded, with this one
	Named   bool // the evidence is sufficient

	// Renewers are the clients that renew the lock, if that does not say who holds it: several clients do,
	// or one by a command that looks at no owner, as that of a waiter may.
	Renewers []Client
}

// TwoRenewers is the problem of a hold that several clients renew. Only this search finds it.
var TwoRenewers = Problem{"two-renewers", Warning, finding, "several clients renew one hold, so it may last after its holder has ended",
	"Find out which of them holds the lock, and stop the others. Renew the lock with a script that compares the token first."}

// Finding returns the finding of a lock; its text is that of the suspicion.
func (s Suspicion) Finding(lock ID) (f Finding, found bool) {
	return Finding{Problem: TwoRenewers, Lock: lock, Text: s.Text()}, len(s.Renewers) > 1
}

// Text says how the client is known, or how far the search has come.
func (s Suspicion) Text() string {
	var renewers []string
	for _, c := range s.Renewers {
		renewers = append(renewers, strings.TrimSpace(c.Name+" "+c.Addr))
	}
	left := "no client was seen at every change"
	switch {
	case s.Left == 1:
		left = "1 client is left"
	case s.Left > 1:
		left = humanize.Count(s.Left) + " clients are left"
	}
	switch {
	case len(renewers) == 1:
		return renewers[0] + " renews it by " + s.Renewers[0].Command + ", which looks at no owner: it may be a waiter, and others may renew it, too"
	case len(renewers) > 0:
		return fmt.Sprintf("%d clients renew it: %s", len(renewers), strings.Join(renewers, ", "))
	case !s.Named:
		return fmt.Sprintf("%s, %s", humanize.Plural(s.Changes, "change"), left)
	}
	return fmt.Sprintf("it ran %s just when the lock changed, %d of %d times, and hardly ever between; %s", s.Client.Command, s.Hits, s.Changes, left)
}

// Parameters of the evidence.
const (
	hitIfHolder  = 0.9  // of the changes of the holder, those at which its command is seen
	hidden       = 0.1  // factor for a suspect that ran another command since the change
	absent       = 0.01 // factor for a suspect that ran no command
	unsure       = 0.5  // factor for a suspect that may have run its last command before the change
	maxNoise     = 0.1  // from which on a hit of a suspect says nothing
	maxRare      = 0.02 // from which on it does not say that the suspect made the change
	maxActive    = 0.6  // share of the lists with an idle time of 0, from which on idle times say nothing
	unseenHolder = 0.2  // probability that the holder is not in the lists, as a share of that it is
	sufficient   = 500  // required weight of a suspect, as a multiple of all others and the unseen holder together
	excluded     = 0.01 // probability below which a suspect counts as excluded
	minFresh     = 2    // required number of certain hits
	maxInStep    = 0.1  // limit of the expected number of clients that write in step with the lock by chance
	maxMisses    = 2    // of a suspect
	maxChanges   = 6    // after which all clients are suspects again if none is named
)

// Idle adds a list of clients. The lock did not change between the previous list and this
// one.
func (s *Suspects) Idle(at time.Time, list []Client) {
	between := at.Sub(s.lastAt)
	for _, is := range list {
		one := s.all[is.ID]
		if one == nil {
			one = &suspect{client: is, weight: 1}
			s.all[is.ID] = one
		}
		if was, listed := s.last[is.ID]; listed {
			one.quiet += between
			one.lists++
			if is.Idle == 0 {
				one.active++
			}
			if one.activity(was, is) == ran && slices.Contains(s.commands, is.Command) {
				one.noise++
			}
		}
	}
	s.Skip(at, list)
}

// Changed adds a list of clients. The lock changed between the previous list and this one.
func (s *Suspects) Changed(at time.Time, list []Client) {
	s.changes++
	switch s.changes {
	case 1:
		s.firstAt = at
		s.rest = unseenHolder * float64(len(list))
	case 2:
		s.rates = nil
		for _, one := range s.all {
			if one.noise > 0 {
				s.rates = append(s.rates, float64(one.noise)/one.quiet.Seconds())
			}
		}
	}
	between, now := at.Sub(s.lastAt), byClientID(list)
	for _, c := range list {
		s.join(c, between)
	}
	for id, one := range s.all {
		is, connected := now[id]
		rival := one.noise == 0 && slices.Contains(s.commands, is.Command) // it may be the next to join
		if connected && one.command != "" {
			one.client = is
			one.judge(s.last[id], is, between, s.changes)
		}
		if !connected || one.misses >= maxMisses+2*one.fresh || one.command == "" && s.changes > 1 && !rival {
			delete(s.all, id)
		}
	}
	s.Skip(at, list)
	if best := s.Best(); best.Client.ID == 0 || s.changes >= maxChanges && !best.Named {
		s.Restart()
		s.previous = best
	}
}

// join makes a client a suspect if its last command writes and can be as new as the change. After
// the first change it must have run it certainly, and rarely before.
func (s *Suspects) join(c Client, between time.Duration) {
	one, missed := s.all[c.ID], s.changes-1
	was, listed := s.last[c.ID]
	switch {
	case !slices.Contains(s.commands, c.Command) || c.Idle > recent || one != nil && one.command != "":
		return
	case missed > 0 && (one == nil || !listed || one.activity(was, c) != ran || one.noiseIn(between) > maxRare):
		return
	case one == nil:
		one = &suspect{}
		s.all[c.ID] = one
	}
	one.command, one.misses, one.absent, one.weight = c.Command, min(missed, maxMisses-1), missed > 0, math.Pow(absent, float64(missed))
}

// Skip adds a list of clients that says nothing: it is not known whether the holder changed
// the lock since the previous list.
func (s *Suspects) Skip(at time.Time, list []Client) { s.last, s.lastAt = byClientID(list), at }

// Restart makes all clients suspects again, as for another holder. What they do between
// the changes is not forgotten.
func (s *Suspects) Restart() {
	s.changes, s.previous = 0, Suspicion{}
	for _, one := range s.all {
		one.command, one.weight, one.hits, one.fresh, one.misses, one.absent, one.sure = "", 1, 0, 0, 0, false, 0
	}
}

// noiseIn returns the expected number of commands that write, in a time without a change. The rate
// of a rare event is estimated after Krichevsky and Trofimov.
func (one *suspect) noiseIn(between time.Duration) float64 {
	return (float64(one.noise) + 0.5) * between.Seconds() / max(one.quiet, between).Seconds()
}

// judge records whether a suspect ran its command at a change, between two lists. A zero
// was is a client that was not in the previous list.
func (one *suspect) judge(was, is Client, between time.Duration, change int) {
	did := maybeRan
	if was.ID != 0 {
		did = one.activity(was, is)
	}
	switch {
	case did == didNotRun:
		one.misses++
		one.absent = true
		one.weight *= absent
	case is.Command != one.command:
		one.misses++
		one.weight *= hidden
	case did == maybeRan:
		one.hits++
		one.weight *= unsure
	default:
		one.hits++
		one.fresh++
		if one.fresh == 1 || between < one.closest {
			one.closest = between
		}
		if noise := one.noiseIn(between); noise <= maxNoise {
			one.weight *= hitIfHolder / noise
			if noise <= maxRare {
				one.sure |= 1 << change
			}
		}
	}
}

// IDs returns the clients that the next list must have, in order; nil for all clients.
func (s *Suspects) IDs() []int64 {
	if s.changes < 2 {
		return nil
	}
	return slices.Sorted(maps.Keys(s.all))
}

// Best returns the suspect with the most evidence. Its Client is zero if there is none.
func (s *Suspects) Best() Suspicion {
	if s.changes == 0 {
		return s.previous
	}
	result := Suspicion{Changes: s.changes}
	var best *suspect
	sum := s.rest
	for _, one := range s.all {
		if one.command != "" {
			sum += one.weight
		}
	}
	for _, one := range s.all {
		if one.command == "" {
			continue
		}
		if one.weight/sum > excluded {
			result.Left++
		}
		if best == nil || one.weight > best.weight || one.weight == best.weight && one.client.ID < best.client.ID {
			best = one
		}
	}
	if best == nil {
		return result
	}
	result.Client, result.Hits = best.client, best.hits
	result.Renewers = s.renewers()
	alone := !best.absent && result.Renewers == nil
	for _, one := range s.all {
		alone = alone && one.sure&^best.sure == 0
	}
	result.Named = alone && best.fresh >= minFresh && best.weight >= sufficient*(sum-best.weight) && s.inStep(best.closest) <= maxInStep
	if result.Named && slices.Contains(blindCommands, best.command) {
		result.Named, result.Renewers = false, []Client{best.client}
	}
	return result
}

// renewers returns the clients that have made changes that none of the others has made, at least two
// each, if they have made all changes but one at most.
func (s *Suspects) renewers() (all []Client) {
	made := uint64(0)
	for _, id := range slices.Sorted(maps.Keys(s.all)) {
		one, others := s.all[id], uint64(0)
		for other, two := range s.all {
			if other != id && two.command != "" {
				others |= two.sure
			}
		}
		if bits.OnesCount64(one.sure&^others) >= minFresh {
			all, made = append(all, one.client), made|one.sure
		}
	}
	if len(all) < 2 || bits.OnesCount64(made) < s.changes-1 {
		return nil
	}
	return all
}

// inStep returns the expected number of clients that write as rarely as the lock changes,
// and by chance within the same time as one of its changes. If their period is that of the
// lock, as with other locks of the same library, they do so at each change.
func (s *Suspects) inStep(within time.Duration) float64 {
	period := s.lastAt.Sub(s.firstAt).Seconds() / float64(max(s.changes-1, 1))
	sum := 0.0
	for _, rate := range s.rates {
		if rate*period <= 1.5 {
			sum += rate
		}
	}
	return sum * within.Seconds()
}

func byClientID(list []Client) map[int64]Client {
	m := make(map[int64]Client, len(list))
	for _, c := range list {
		m[c.ID] = c
	}
	return m
}

// recent is the idle time of a client that has just run a command. The server's clock for
// it has whole seconds, and may be late.
const recent = time.Second

// activity says whether a client ran a command between two lists.
type activity int

const (
	didNotRun activity = iota
	maybeRan
	ran
)

// activity compares a client in two lists. The number of its commands shows every command.
// A server without that number shows a change of the last command, and the second of the
// last one: the age of the connection minus its idle time. A client that is active nearly
// all the time starts a new second soon after each one begins, so its seconds are no
// evidence.
func (one *suspect) activity(was, is Client) activity {
	switch {
	case was.Commands >= 0 && is.Commands >= 0:
		if is.Commands > was.Commands {
			return ran
		}
		return didNotRun
	case was.Command != is.Command:
		return ran
	case is.Age-is.Idle > was.Age-was.Idle:
		if float64(one.active) > maxActive*float64(one.lists) {
			return maybeRan
		}
		return ran
	case was.Idle <= recent && is.Idle <= recent:
		return maybeRan
	default:
		return didNotRun
	}
}

// renewCommands are the commands with which libraries change a lock of any type.
var renewCommands = [...]string{"eval", "evalsha", "exec", "expire", "expireat", "fcall", "pexpire", "pexpireat"}

// blindCommands are those that renew a lock whoever holds it.
var blindCommands = []string{"expire", "expireat", "pexpire", "pexpireat"}

// typeCommands are the other commands with which libraries change a lock, by its type.
var typeCommands = map[string][]string{
	"string": {"getset", "incr", "psetex", "set", "setex", "setnx"},
	"hash":   {"hincrby", "hmset", "hset", "hsetnx"},
	"list":   {"lpush", "rpush"},
	"set":    {"sadd"},
	"zset":   {"zadd"},
}
