package keyspace

import (
	"slices"
	"time"
)

// Suspects finds the client that changes a lock by coincidence: it compares the clients
// before and after each change of the lock. The client that holds the lock has run a
// command that writes at each change. Others have, too, now and then; how often is seen
// between the changes.
//
// A list of clients between two changes is for Idle, one as soon as possible after a
// change is for Changed. The first change, or one after which no client is left, selects
// the suspects. It is not safe for concurrent use.
type Suspects struct {
	commands []string // that can change the lock
	recent   []listed // the lists before the present one, the oldest first
	all      map[int64]*suspect
	selected int // number of suspects at first
	changes  int // with the one that selected the suspects
}

// NewSuspects returns the Suspects for a lock whose key has this type.
func NewSuspects(typ string) *Suspects {
	return &Suspects{commands: append(slices.Clone(renewCommands[:]), typeCommands[typ]...)}
}

// listed is a list of clients by their IDs, and its time.
type listed struct {
	at      time.Time
	clients map[int64]Client
}

// suspect is what is known of one client.
type suspect struct {
	client  Client
	command string        // that selected it: a library renews with one command
	hits    int           // changes at which it ran its command, or may have done so
	misses  int           // changes at which it did not
	fresh   int           // of the hits: those at which it certainly ran a command
	quiet   time.Duration // observed without a change
	noise   int           // times that it ran its command meanwhile
	weight  float64       // how much more likely the changes are if it made them
}

// Suspicion is the client that probably holds a lock, and why.
type Suspicion struct {
	Client  Client
	Changes int  // number of changes so far
	Hits    int  // changes at which this client had just run a command that writes
	Left    int  // clients that cannot be excluded, with this one
	Named   bool // the evidence is sufficient
}

// Parameters of the evidence.
const (
	hitIfHolder = 0.9  // of the changes of the holder, those at which its command is seen
	unsure      = 0.5  // factor for a suspect that may have run its last command before the change
	maxNoise    = 0.1  // from which on a hit of a suspect says nothing
	sufficient  = 250  // required weight of a suspect, for each of those selected
	foremost    = 20   // required weight of a suspect, as a multiple of all others together
	excluded    = 0.01 // probability below which a suspect counts as excluded
	minFresh    = 2    // required number of certain hits
	maxMisses   = 2    // of a suspect
	maxChanges  = 6    // after which new suspects are selected if none is named

	reportDelay = 50 * time.Millisecond // longest usual time between a change and its report
)

// Idle adds a list of clients at a time, before which the lock did not change.
func (s *Suspects) Idle(at time.Time, list []Client) {
	s.recent = append(s.recent, listed{at, byClientID(list)})
	for len(s.recent) > 2 && at.Sub(s.recent[1].at) > reportDelay {
		s.addQuiet(s.recent[0], s.recent[1])
		s.recent = s.recent[1:]
	}
}

// addQuiet adds the time between two lists, in which the lock did not change.
func (s *Suspects) addQuiet(before, after listed) {
	for id, one := range s.all {
		was, is := before.clients[id], after.clients[id]
		if was.ID == 0 || is.ID == 0 {
			continue
		}
		one.quiet += after.at.Sub(before.at)
		if ranNow(was, is) == ran && is.Command == one.command {
			one.noise++
		}
	}
}

// Changed adds a list of clients at a time just after the lock changed. The change may have
// been before the previous lists, too, by up to 50 ms.
func (s *Suspects) Changed(at time.Time, list []Client) {
	now := byClientID(list)
	var before listed
	if len(s.recent) > 0 {
		before = s.recent[0]
	}
	s.recent = []listed{{at, now}}
	s.changes++
	if len(s.all) == 0 || s.changes > maxChanges {
		s.choose(now)
		return
	}
	for id, one := range s.all {
		is, connected := now[id]
		if !connected {
			delete(s.all, id)
			continue
		}
		one.client = is
		one.judge(before.clients[id], is, at.Sub(before.at))
		if one.misses >= maxMisses {
			delete(s.all, id)
		}
	}
	if len(s.all) == 0 {
		s.choose(now)
	}
}

// Unclear forgets the previous lists: the lock has changed, but not by its holder.
func (s *Suspects) Unclear() { s.recent = nil }

// choose makes suspects of all clients that have just run a command that writes.
func (s *Suspects) choose(now map[int64]Client) {
	s.all, s.changes = make(map[int64]*suspect), 1
	for id, c := range now {
		if slices.Contains(s.commands, c.Command) && c.Idle <= recent {
			s.all[id] = &suspect{client: c, command: c.Command, hits: 1, weight: 1}
		}
	}
	s.selected = len(s.all)
}

// judge records whether a suspect ran its command at a change, between two lists.
func (one *suspect) judge(was, is Client, between time.Duration) {
	// The rate of a rare event is estimated after Krichevsky and Trofimov.
	noise := min((float64(one.noise)+0.5)*between.Seconds()/max(one.quiet, between).Seconds(), hitIfHolder)
	did := maybeRan
	if was.ID != 0 {
		did = ranNow(was, is)
	}
	switch {
	case is.Command != one.command || is.Idle > recent || did == didNotRun:
		one.misses++
		one.weight *= (1 - hitIfHolder) / (1 - noise)
	case did == maybeRan:
		one.hits++
		one.weight *= unsure
	default:
		one.hits++
		one.fresh++
		if noise <= maxNoise {
			one.weight *= hitIfHolder / noise
		}
	}
}

// IDs returns the clients that matter at the next change, in order; nil for all clients.
func (s *Suspects) IDs() []int64 {
	if len(s.all) == 0 || s.changes >= maxChanges {
		return nil
	}
	ids := make([]int64, 0, len(s.all))
	for id := range s.all {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Best returns the suspect with the most evidence. Its Client is zero if there is none.
func (s *Suspects) Best() Suspicion {
	result := Suspicion{Changes: s.changes}
	var best *suspect
	sum := float64(s.selected) // for a holder that is not among the suspects
	for _, one := range s.all {
		sum += one.weight
	}
	for _, one := range s.all {
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
	others := sum - float64(s.selected) - best.weight
	result.Named = best.fresh >= minFresh && best.weight >= sufficient*float64(s.selected) && best.weight >= foremost*others
	return result
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

func ranNow(was, is Client) activity {
	switch {
	case was.Commands >= 0 && is.Commands >= 0:
		if is.Commands > was.Commands {
			return ran
		}
		return didNotRun
	case was.Command != is.Command || is.Idle < was.Idle:
		return ran
	case is.Idle <= recent:
		return maybeRan
	default:
		return didNotRun
	}
}

// renewCommands are the commands with which libraries change a lock of any type.
var renewCommands = [...]string{"eval", "evalsha", "exec", "expire", "expireat", "fcall", "pexpire", "pexpireat"}

// typeCommands are the other commands with which libraries change a lock, by its type.
var typeCommands = map[string][]string{
	"string": {"getset", "incr", "psetex", "set", "setex", "setnx"},
	"hash":   {"hincrby", "hmset", "hset", "hsetnx"},
	"list":   {"lpush", "rpush"},
	"set":    {"sadd"},
	"zset":   {"zadd"},
}
