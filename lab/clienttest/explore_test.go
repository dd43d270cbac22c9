//go:build unix

package clienttest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/loadgen/external"
)

// knownOrder is a client with a flaw, and an order that shows it.
type knownOrder struct {
	client string // as in command
	order  string
	steps  int // of the shortest order that is known, with as many faults, and with the tries of the other client after it
}

// knownOrders are the historic forms, and the flaws of flawedClients that an order of commands
// within a TTL can show.
var knownOrders = []knownOrder{
	{"classic/get-then-del", "release/a.a.af.b.a", 5},              // frozen between GET and DEL
	{"classic/setnx-expire", "release/b.bk", 6},                    // killed before EXPIRE
	{"classic/exists-set", "release/b.a.b.a", 4},                   // both ask before either sets
	{"classic/getset", "release/a.af.b.b.b.a", 6},                  // a late DEL
	{"classic/blind-delete", "release/a.af.b.a", 4},                // a late DEL
	{"classic/counted", "again/a.af.b.a.a", 5},                     // its count lets it in again
	{"classic/two-key-rw", "readers/a.b.a", 3},                     // one reader frees both
	{"classic/stamp-rw", "readers/b.a.a", 3},                       // the second reader frees both
	{"classic/quorum-semaphore", "permits-nodes/ad.b.bd.a.b.a", 6}, // three majorities of two permits
	{"test:set/open", "release/a.b", 2},
	{"test:set/forever", "release/b.bk", 6},
	{"test:signal/notify-only", "release/a.a.b.bk", 6},
	{"test:semaphore/sem-counts-expired", "permits/a.b.ak.bk", 4},
	{"test:set/seconds-zero", "release/b.bk", 6},
	{"test:set/seconds-ceil-valid", "release/a.a.b", 3},
	{"test:set/quiet", "release/a.af.b.a", 4},
	{"test:set/unlock-always-ok", "release/a.af.b.a", 4},
	{"test:set/blind", "release/a.af.b.a", 4},
	{"test:set/token-same", "release/a.af.b.a", 4},
	{"test:set/extend-set-xx", "extend/a.af.b.a", 4},
	{"test:set/extend-blind", "extend/a.af.b.a", 4},
	{"test:renewer/renew-blind", "extend/a.af.b", 3},
	{"test:set/remembers", "again/a.af.b.a", 4},
	{"test:set/token-reuse", "again/a.af.b.b.a.a", 6},
	{"test:set/setnx-expire", "release/b.bk", 6},
	{"test:set/wait-two-commands", "release/a.b.a.b.bk", 5},
	{"test:recovers/retry-acquire-get", "release/a.a.br.b", 4},
	{"test:sequential/valid-from-reply", "release/a.a.bl.b", 4},
	{"test:set/repeats", "release/a.ar.b.a", 4},
	{"test:set/get-then-del", "release/a.a.af.b.a", 5},
	{"test:set/queue", "release/b.bk", 6},
	{"test:set/cleanup-deletes", "release/b", 8},
	{"test:set/recreates", "extend/a.af.b.a", 4},
	{"test:set/extend-lies", "extend/a.af.b.a", 4},
	{"test:reentrant/re-first-frees", "again/a.a.a.b", 4},
	{"test:reentrant/re-release-retry", "again/al.a.a.a.b", 5},
	{"test:rw/rw-all-readers", "readers/a.b.a", 3},
	{"test:rw/readers-forever", "readers/a.ak", 6},
	{"test:rw/rw-persist", "writer/a.b.ak", 7},
	{"test:semaphore/sem-off-by-one", "permits/a.b", 2},
	{"test:fenced/fence-constant", "release/a.a.b", 3},
	{"test:set/minority", "nodes/bd.a.b.a.b.a", 6},
	{"test:set/half", "nodes/bd.a.b.a.b.a", 6},
}

func explored(t *testing.T, o ExhaustOptions, kind string) Played {
	t.Helper()
	o.Commands = []string{command(kind)}
	s := check.Must(Exhaust(t.Context(), o))(t)
	c := s.Clients[0]
	check.Require(t, len(c.Plays) == 1 && c.Client.Error == "", "%s: %s: %d plays", kind, c.Client.Error, len(c.Plays))
	p := c.Plays[0]
	t.Logf("%s: %s: orders %v, left %d, same %d, together %d, own %d, other %d, doubtful %d in %s %s", kind, p.Play, p.Orders, p.Left, p.Same,
		p.Together, p.Own, p.Other, p.Doubtful, time.Duration(p.Took), p.Error)
	if p.Found != nil {
		t.Logf("%s: %+v", kind, *p.Found)
	}
	return p
}

// An order can be repeated. The first tier repeats one order, the long one all known orders,
// and the proof each of them ten times.
func TestAKnownOrderShowsItsFlawAgain(t *testing.T) {
	t.Parallel()
	for _, k := range knownOrders[:testtier.Size(1, len(knownOrders), len(knownOrders))] {
		t.Run(k.client, func(t *testing.T) {
			t.Parallel()
			runs := testtier.Size(1, 2, 10)
			p := explored(t, ExhaustOptions{Order: k.order, Repeat: runs}, k.client)
			// A run of a machine that is too slow says nothing, and some orders depend on a timer of the
			// client: that of a quorum semaphore ends after 50 ms.
			for tries := 1; p.Slow == runs || p.Found == nil && tries < 20; tries++ {
				p = explored(t, ExhaustOptions{Order: k.order, Repeat: runs}, k.client)
			}
			check.True(t, p.Found != nil && (!testtier.Proving() || p.Found.Seen >= runs-2-p.Other-p.Slow),
				"%s: not in each of %d runs: %+v", k.order, runs, p.Found) // the machine may be busy twice
		})
	}
}

// The orders that show a flaw of another client show none of a sound one.
func TestAKnownOrderShowsNoFlawOfASoundClient(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"release/a.af.b.a", "release/b.bk", "extend/a.af.b.a", "again/a.af.b.a.a"}[:testtier.Size(1, 4, 4)] {
		p := explored(t, ExhaustOptions{Order: order, Repeat: 1}, "test:set")
		check.True(t, p.Found == nil && p.Other <= 0 && slices.Equal(p.Orders, []int{1}), "%s: %+v", order, p)
	}
}

// The exploration finds an order with as few faults and steps as the known one. The proof does
// so for each client, and explores all orders of a sound one.
func TestTheShortestOrderIsFound(t *testing.T) {
	testtier.Long(t, "it runs all orders with a fault")
	t.Parallel()
	for _, k := range knownOrders[:testtier.Size(1, 2, len(knownOrders))] {
		play, steps, err := parseOrder(k.order)
		check.NoError(t, err)
		p := explored(t, ExhaustOptions{Plays: []string{play.name}, Limit: 1000}, k.client)
		check.True(t, p.Found != nil && p.Found.Faults <= steps.faults() && (len(p.Found.taken()) <= k.steps || p.Found.Faults != steps.faults()),
			"%s: %+v is longer than %s", k.client, p.Found, k.order)
	}
	p := explored(t, ExhaustOptions{Plays: []string{"release"}, Limit: testtier.Size(20, 100, 5000)}, "test:set")
	check.True(t, p.Found == nil && len(p.Orders) >= 2, "a sound client: %+v", p)
}

// An interrupt ends the exploration, with what was found so far.
func TestAnInterruptedExplorationReturnsItsCounts(t *testing.T) {
	testtier.Long(t, "it runs some orders")
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Exhaust(ctx, ExhaustOptions{Commands: []string{command("test:set"), command("test:set")}, Together: 1, Progress: func(now Exploring) {
		if now.Orders == 2 {
			cancel()
		}
	}})
	check.Require(t, errors.Is(err, context.Canceled) && len(s.Clients) == 1 && len(s.Clients[0].Plays) == 1, "%v: %+v", err, s)
	p := s.Clients[0].Plays[0]
	check.True(t, slices.Equal(p.Orders, []int{2}) && p.Left != 0 && p.Error != "", "%+v", p)
}

func TestTheIDOfAnOrder(t *testing.T) {
	const id = "permits-nodes/a.bd.ak.b.af.bl.br"
	p, o, err := parseOrder(id)
	check.True(t, err == nil && p.name+"/"+o.String() == id && o.faults() == 5, "%s/%s with %d faults, %v", p.name, o, o.faults(), err)
	for _, wrong := range []string{"", "release", "release/", "release/c", "release/ax", "release/a..b", "release/afk", "nothing/a"} {
		check.True(t, CheckOrder(wrong) != nil, "%q is the ID of an order", wrong)
	}
}

// Commands on different servers have the same effect in both orders, so that only one of them
// runs. With a fault, or on one server, both do.
func TestOnlyCommandsOnDifferentServersAreLeftOut(t *testing.T) {
	a1, a2, b1, b2 := option{choice{0, noFault}, 1}, option{choice{0, noFault}, 2}, option{choice{1, noFault}, 1}, option{choice{1, noFault}, 2}
	unknown, fault := option{choice{1, noFault}, 0}, option{choice{1, killed}, 2}
	check.DeepEqual(t, awake([]option{a1, a2, unknown, fault}, b2), []option{a1}, "after a command on server 2")
	got := awake([]option{a1}, b1)
	check.True(t, len(got) == 0, "after a command on the same server: %v", got)
	if got := awake([]option{a1}, fault); len(got) > 0 {
		t.Errorf("after a fault: %v", got)
	}
}

// A lease that was just reported ends as if the client had written the answer when it could go on
// last: a busy machine makes no overlap. A longer lease ends when the client says.
func TestALeaseEndsNotLaterThanForTheClient(t *testing.T) {
	t.Parallel()
	s := check.Must(openStage(t.Context(), probe(t.Context(), command("test:set"), ""), 1, ""))(t)
	defer s.close()
	s.play = plays()[0]
	check.NoError(t, s.ready())
	p := s.players[asker]
	p.request()
	asked := p.roused
	l := check.Must(p.process.Lock(t.Context(), external.Terms{Keys: []string{s.key}, TTL: time.Minute}))(t)
	check.True(t, p.roused.After(asked) && p.took != 0, "the reply to its command did not rouse the client")
	read := time.Now() // later than the answer
	c := &claim{player: p, lease: l, reported: l.Deadline(), certain: p.certain(l)}
	if most := p.roused.Add(l.Latest().Sub(read)); c.certain.After(most) || c.end().After(c.certain) || c.end().After(c.reported) {
		t.Errorf("it ends %s or %s, want at most %s", c.end(), c.certain, most)
	}
	if c.certain = asked; c.valid() {
		t.Error("a lease is valid after its end")
	}
	for !l.Deadline().After(c.reported) { // an extension that takes long ends no later
		check.NoError(t, l.Extend(t.Context(), time.Minute))
	}
	check.True(t, c.end().Equal(l.Deadline()), "after an extension it ends %s, want %s", c.end(), l.Deadline())
}
