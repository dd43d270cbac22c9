package clienttest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/loadgen/external"
)

// orderTTL is the TTL of a lease in [Exhaust].
const orderTTL = 200 * time.Millisecond

// op is a request of a play.
type op uint8

const (
	opLock   op = iota // for writing, or a permit
	opRead             // lock for reading
	opRelock           // lock again, with or without the first hold
	opExtend           // the first hold
	opUnlock           // the first hold
)

// play is what two clients do, whose commands [Exhaust] brings into every order.
type play struct {
	name    string
	title   string
	needs   func(profile) string // why the client does not have what it needs; "": it has
	scripts [2][]op
	permits int // that a lock asks for; 0 = none
	nodes   int // servers
}

// plays returns all plays, in the order in which they run.
func plays() []play {
	exclusive := func(p profile) string {
		if slices.ContainsFunc(p.Hello.Kinds, func(k string) bool { return k != "semaphore" && k != "redlock" }) || p.has("redlock") && !p.has("semaphore") {
			return ""
		}
		return "hello names no kind of lock for one holder"
	}
	return []play{
		{name: "release", title: "client-1 locks and unlocks, client-2 locks", needs: exclusive, nodes: 1,
			scripts: [2][]op{{opLock, opUnlock}, {opLock}}},
		{name: "extend", title: "client-1 locks and extends its lease, client-2 locks", needs: func(p profile) string {
			if why := needsRenewal(p); why != "" {
				return why
			}
			return exclusive(p)
		}, nodes: 1, scripts: [2][]op{{opLock, opExtend}, {opLock}}},
		{name: "readers", title: "client-1 locks for reading and unlocks, client-2 locks for reading", needs: kinds("rw"), nodes: 1,
			scripts: [2][]op{{opRead, opUnlock}, {opRead}}},
		{name: "writer", title: "client-1 locks for writing, client-2 locks for reading", needs: kinds("rw"), nodes: 1,
			scripts: [2][]op{{opLock}, {opRead}}},
		{name: "permits", title: "client-1 and client-2 take the two permits of a semaphore", needs: kinds("semaphore"), nodes: 1, permits: 2,
			scripts: [2][]op{{opLock}, {opLock}}},
		{name: "permits-nodes", title: "client-1 and client-2 take the two permits of a semaphore on three nodes", needs: kinds("semaphore", "redlock"), nodes: 3, permits: 2,
			scripts: [2][]op{{opLock}, {opLock}}},
		{name: "nodes", title: "client-1 locks and unlocks on three nodes, client-2 locks", needs: func(p profile) string {
			if p.has("semaphore") && p.has("redlock") {
				return "it is a semaphore"
			}
			return kinds("redlock")(p)
		}, nodes: 3, scripts: [2][]op{{opLock, opUnlock}, {opLock}}},
		{name: "again", title: "client-1 locks twice and releases its first hold, client-2 locks and unlocks", needs: exclusive, nodes: 1,
			scripts: [2][]op{{opLock, opRelock, opUnlock}, {opLock, opUnlock}}},
	}
}

// Plays returns all plays of [Exhaust], without a result.
func Plays() (all []Played) {
	for _, p := range plays() {
		all = append(all, Played{Play: p.name, Title: p.title})
	}
	return all
}

// ChoosePlays returns an error about the first unknown name of a play.
func ChoosePlays(names []string) error {
	var known []string
	for _, p := range plays() {
		known = append(known, p.name)
	}
	return unknown("play", names, known)
}

// terms returns what a request asks for.
func (p play) terms(o op, wait time.Duration) external.Terms {
	return external.Terms{TTL: orderTTL, Wait: wait, Read: o == opRead, Permits: p.permits}
}

// choice is one step of an order: the client a or b goes on, or is struck by a fault.
type choice struct {
	client int
	fault  fault
}

// fault is what strikes a client, as its letter in the name of a step.
type fault byte

const (
	noFault     fault = 0
	killed      fault = 'k' // before its next command
	frozen      fault = 'f' // before its next command, for longer than the TTL, until its next step
	lateReply   fault = 'l' // frozen before it reads the reply to its next command
	lostReply   fault = 'r' // its next command runs, and untilBroken later the connection breaks
	lostCommand fault = 'd' // its next command is lost with its connection
)

// faultTexts describe the faults in a table.
var faultTexts = map[fault]string{
	killed: "killed", frozen: "frozen for longer than the TTL", lateReply: "frozen for longer than the TTL before it reads the reply",
	lostReply: "the reply is lost", lostCommand: "the command is lost",
}

func (c choice) String() string {
	if c.fault == noFault {
		return string(rune('a' + c.client))
	}
	return string([]rune{rune('a' + c.client), rune(c.fault)})
}

// order is a sequence of steps.
type order []choice

func (o order) String() string {
	var words []string
	for _, c := range o {
		words = append(words, c.String())
	}
	return strings.Join(words, ".")
}

func (o order) faults() (n int) {
	for _, c := range o {
		if c.fault != noFault {
			n++
		}
	}
	return n
}

// CheckOrder returns an error if an ID is not that of an order.
func CheckOrder(id string) error {
	_, _, err := parseOrder(id)
	return err
}

// parseOrder reads the ID of an order: the name of a play, a slash, and the steps.
func parseOrder(id string) (p play, o order, err error) {
	name, steps, _ := strings.Cut(id, "/")
	i := slices.IndexFunc(plays(), func(p play) bool { return p.name == name })
	if i < 0 {
		return p, nil, fmt.Errorf("%q is not the ID of an order: there is no play %q", id, name)
	}
	for _, word := range strings.Split(steps, ".") {
		c := choice{}
		switch {
		case len(word) == 2 && faultTexts[fault(word[1])] != "":
			c.fault = fault(word[1])
		case len(word) != 1:
			return p, nil, fmt.Errorf("%q is not the ID of an order: there is no step %q", id, word)
		}
		if c.client = int(word[0]) - 'a'; c.client < 0 || c.client > 1 {
			return p, nil, fmt.Errorf("%q is not the ID of an order: there is no step %q", id, word)
		}
		o = append(o, c)
	}
	return plays()[i], o, nil
}
