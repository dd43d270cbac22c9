package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// start is a time on the clock of all servers.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fixed is a source that always returns the same snapshot.
type fixed struct {
	snap keyspace.Snapshot
	err  error
}

func (f fixed) Snapshot(context.Context) (keyspace.Snapshot, error) { return f.snap, f.err }

// on returns a snapshot of one server with these locks, each "key=token", that
// expire after so many seconds. A key without "=" has no holder.
func on(addr string, at time.Time, seconds int, locks ...string) keyspace.Snapshot {
	s := keyspace.Snapshot{At: at, Complete: true, Server: keyspace.Server{Addr: addr, Version: "7.0.15"}}
	for _, l := range locks {
		key, token, held := strings.Cut(l, "=")
		lock := &keyspace.Lock{Key: key, Format: "redsync", Kind: keyspace.Mutex, Confidence: keyspace.Likely, Node: addr}
		if held {
			lock.Expires = at.Add(time.Duration(seconds) * time.Second)
			lock.Holders = []keyspace.Holder{{ID: token, Depth: 1, Expires: lock.Expires}}
		}
		s.Locks = append(s.Locks, lock)
	}
	s.Nodes = []keyspace.Node{{Server: s.Server, Up: true, Keys: 10, Locks: len(s.Locks)}}
	return s
}

// sourcesOf returns the sources as servers node1, node2 …
func sourcesOf(sources ...Source) []NamedSource {
	all := make([]NamedSource, len(sources))
	for i, s := range sources {
		all[i] = NamedSource{fmt.Sprintf("node%d", i+1), s}
	}
	return all
}

func multiOf(o MultiOptions, all []NamedSource) *MultiSource {
	return NewMultiSource(func(context.Context) ([]NamedSource, error) { return all, nil }, o)
}

func snapshotOf(t *testing.T, f *MultiSource) keyspace.Snapshot {
	t.Helper()
	return check.Must(f.Snapshot(t.Context()))(t)
}

func TestAMultiSourceShowsTheLocksOfAllItsServers(t *testing.T) {
	s := snapshotOf(t, multiOf(MultiOptions{Mode: "cluster"}, sourcesOf(
		fixed{snap: on("node1", start, 5, "b=1")},
		fixed{snap: on("node2", start, 5, "a=2", "c=3")},
	)))
	check.DeepEqual(t, keys(s), []string{"b", "a", "c"}, "it shows")
	check.True(t, s.Complete && s.Server.Mode == "cluster" && len(s.Problems) == 0, "it is %+v", s)
	check.True(t, len(s.Nodes) == 2 && s.Nodes[1].Addr == "node2" && s.Nodes[1].Locks == 2 && s.Nodes[1].Up, "its nodes are %+v", s.Nodes)
}

func TestAServerThatDoesNotAnswerIsMissingAndNamed(t *testing.T) {
	down := fixed{err: errors.New("connection refused")}
	s := snapshotOf(t, multiOf(MultiOptions{}, sourcesOf(down, fixed{snap: on("node2", start, 5, "a=2")})))
	check.True(t, slices.Equal(keys(s), []string{"a"}) && !s.Complete, "it shows %q, complete: %v", keys(s), s.Complete)
	check.DeepEqual(t, s.Problems, []string{"node1 is missing: connection refused"}, "it says")
	n := s.Nodes[0]
	check.True(t, n.Addr == "node1" && !n.Up && n.Error == "connection refused", "the node is %+v", n)
	_, err := multiOf(MultiOptions{}, sourcesOf(down, down)).Snapshot(t.Context())
	check.True(t, errors.Is(err, down.err), "when no server answers, the error is %v", err)
}

func TestLocksReadBeforeAnErrorAreShown(t *testing.T) {
	half := fixed{snap: on("node1", start, 5, "b=1"), err: errors.New("EOF")}
	half.snap.Cost.Keys = 9
	s := snapshotOf(t, multiOf(MultiOptions{}, sourcesOf(half, fixed{snap: on("node2", start, 5, "a=2")})))
	check.True(t, slices.Equal(keys(s), []string{"b", "a"}) && !s.Complete, "it shows %q, complete: %v", keys(s), s.Complete)
	check.DeepEqual(t, s.Problems, []string{"node1 is read only in part, it has 9 keys: EOF"}, "it says")
	s, err := multiOf(MultiOptions{}, sourcesOf(half, half)).Snapshot(t.Context())
	check.True(t, err != nil && err.Error() == "node1: EOF; node2: EOF" && !s.Complete && len(s.Locks) != 0,
		"when all are lost it shows %q, %v", keys(s), err)
}

// A lock that two nodes of a cluster report has moved in between. The later report counts.
func TestALockThatMovesInAClusterIsReportedOnce(t *testing.T) {
	before, after := on("node1", start, 5, "a=1", "b=1"), on("node2", start.Add(50*time.Millisecond), 5, "a=2")
	s := snapshotOf(t, multiOf(MultiOptions{Mode: "cluster"}, sourcesOf(fixed{snap: before}, fixed{snap: after})))
	got := keys(s)
	check.True(t, slices.Equal(got, []string{"b", "a"}) && s.Locks[1].Node == "node2",
		"it shows %q, the second on %s", got, s.Locks[1].Node)
	check.True(t, s.Nodes[0].Locks == 1 && s.Nodes[1].Locks == 1, "its nodes are %+v", s.Nodes)
}

// growing is a source with one more lock in each snapshot. Slot 7 comes to it during the first
// one, unless the first one ends too early, and another slot goes during the second one.
type growing struct {
	looks, goes int
	early       bool
}

func (g *growing) Snapshot(context.Context) (keyspace.Snapshot, error) {
	g.looks++
	var locks []string
	for i := range g.looks {
		locks = append(locks, fmt.Sprintf("l%d=1", i))
	}
	s := on("node1", start, 5, locks...)
	s.Moves = &keyspace.SlotMoves{}
	s.Moves.Came[7], s.Moves.Went[g.goes] = g.looks == 1 && !g.early, g.looks == 2
	return s, nil
}

func TestANodeToWhichKeysHaveMovedIsLookedAtAgain(t *testing.T) {
	for _, early := range []bool{false, true} {
		for slot, complete := range map[int]bool{6: true, 7: false} {
			old := on("node2", start, 5, "z=1")
			old.Moves = &keyspace.SlotMoves{}
			old.Moves.Went[7] = true
			other := &growing{goes: 6, early: true} // it is read again only if it may be the new node
			s := snapshotOf(t, multiOf(MultiOptions{Mode: "cluster"}, sourcesOf(&growing{goes: slot, early: early}, fixed{snap: old}, other)))
			got := keys(s)
			check.True(t, slices.Equal(got, []string{"l0", "l1", "z"}) && s.Complete == complete,
				"read before the move: %v: it shows %q, complete: %v, %q", early, got, s.Complete, s.Problems)
			check.Equal(t, other.looks == 2, early, "another node is read again")
		}
	}
}

// A change of the list of servers is a failover, which is in one snapshot.
func TestAServerThatTakesThePlaceOfAnotherIsANotice(t *testing.T) {
	var addrs []string
	m := NewMultiSource(func(context.Context) (all []NamedSource, err error) {
		for _, addr := range addrs {
			all = append(all, NamedSource{addr, fixed{snap: on(addr, start, 5)}})
		}
		return all, nil
	}, MultiOptions{Mode: "cluster"})
	for _, tt := range []struct{ addrs, want string }{
		{"node1 node2", ""}, {"node2 node1", ""}, {"node3 node2", "node3 has taken the place of node1"}, {"node3 node2", ""},
		{"node3 node2 node4", "locktop watches node4 now, too"}, {"node4", "locktop does not watch node2, node3 any more"},
	} {
		addrs = strings.Fields(tt.addrs)
		got := ""
		for _, n := range snapshotOf(t, m).Notices {
			got += n.Text
			check.True(t, n.Kind == keyspace.ServerFailover && !n.At.IsZero(), "the notice is %+v", n)
		}
		check.True(t, got == tt.want, "%s: %q, want %q", tt.addrs, got, tt.want)
	}
}

func TestDatabasesOfOneServerAreOneNode(t *testing.T) {
	other := on("node1", start, 5, "c=1", "d=1")
	other.Locks[0].DB, other.Locks[1].DB = 3, 3
	s := snapshotOf(t, multiOf(MultiOptions{}, []NamedSource{
		{"node1", fixed{snap: on("node1", start, 5, "a=1")}}, {"node1", fixed{snap: other}},
	}))
	check.True(t, len(s.Nodes) == 1 && s.Nodes[0].Keys == 20 && s.Nodes[0].Locks == 3 && len(s.Locks) == 3,
		"%d locks on %+v", len(s.Locks), s.Nodes)
}

// The remaining time of a lock is that of its own server, even if the servers' clocks differ.
func TestServersWhoseClocksDifferShowOnOne(t *testing.T) {
	ahead := on("node2", start.Add(time.Hour), 5, "b=2")
	ahead.Locks[0].AskedAt = ahead.At
	f := multiOf(MultiOptions{}, sourcesOf(fixed{snap: on("node1", start, 5, "a=1")}, fixed{snap: ahead}))
	for range 3 {
		s := snapshotOf(t, f)
		for _, l := range s.Locks {
			left, _ := l.TTL(s.At)
			check.True(t, (left-5*time.Second).Abs() <= time.Second, "%s has %v left, want 5 s", l.Key, left)
			check.Equal(t, s.At.Sub(l.AskedAt).Abs() <= time.Second, l.Key == "b", "%s is asked for now", l.Key)
			check.True(t, l.Holders[0].Expires == l.Expires, "its holder has until %v, it until %v", l.Holders[0].Expires, l.Expires)
		}
	}
	check.True(t, ahead.Locks[0].Holders[0].Expires.Equal(start.Add(time.Hour+5*time.Second)), "the snapshot of the source was changed")
}

// The clock of a server that is set is followed: neither the time that is left nor the deadline of a holder changes
// with it, whether it is the first server, whose clock counts, or another one.
func TestTheClockOfAServerThatIsSetIsFollowed(t *testing.T) {
	for _, stepped := range []int{0, 2} {
		var all []NamedSource
		m := NewMultiSource(func(context.Context) ([]NamedSource, error) { return all, nil }, MultiOptions{Mode: "redlock", Redlock: true})
		now := time.Now()
		for second, step := range []time.Duration{0, -4 * time.Second, 3 * time.Second, 0} {
			sources := make([]Source, 3)
			for i := range sources {
				ahead := time.Duration(0)
				if i == stepped {
					ahead = step
				}
				left := 40 - second
				if i == stepped { // its deadline is that of the majority
					left -= 10
				}
				s := on(fmt.Sprintf("node%d", i+1), now.Add(ahead+time.Duration(second)*time.Second), left, "a=x")
				if i == 1 {
					s.Locks = nil
				}
				s.Server.Skew = ahead
				if second == 1 && i == stepped {
					s.Server.Skew += 400 * time.Millisecond // the first measurement of the new clock is inexact
				}
				s.Nodes[0].AnsweredAt = now
				sources[i] = fixed{snap: s}
			}
			all = sourcesOf(sources...)
			s := snapshotOf(t, m)
			left, _ := s.Locks[0].TTL(s.At)
			check.True(t, (left-time.Duration(30-second)*time.Second).Abs() < time.Second, "server %d, set by %v: it has %v left", stepped+1, step, left)
			check.True(t, second == 0 || len(s.Events) == 0, "server %d, set by %v: the events are %+v", stepped+1, step, s.Events)
		}
	}
}

func TestARedlockIsOneLockWithAVoteOfEachServer(t *testing.T) {
	silent := fixed{err: errors.New("i/o timeout")}
	nothing := fixed{snap: on("", start, 5)}
	walking := fixed{snap: on("", start, 5)}
	walking.snap.Complete = false
	never := func(token string) fixed {
		s := on("", start, 5, "a="+token)
		s.Locks[0].Expires, s.Locks[0].Holders[0].Expires = time.Time{}, time.Time{}
		return fixed{snap: s}
	}
	has := func(seconds int, token string) fixed { return fixed{snap: on("", start, seconds, "a="+token)} }
	for _, c := range []struct {
		name    string
		servers []NamedSource
		state   keyspace.State
		holders string
		left    time.Duration
		votes   string
	}{
		{"all of one mind", sourcesOf(has(1, "x"), has(2, "x"), has(3, "x"), has(4, "x"), has(5, "x")), keyspace.Held, "x", 3 * time.Second, "xxxxx"},
		{"a bare majority", sourcesOf(has(9, "x"), has(4, "x"), has(7, "x"), nothing, silent), keyspace.Held, "x", 4 * time.Second, "xxx.?"},
		{"a minority is left", sourcesOf(has(9, "x"), has(4, "x"), nothing, nothing, nothing), keyspace.Partial, "x", 9 * time.Second, "xx..."},
		{"no majority", sourcesOf(has(5, "x"), has(5, "x"), has(5, "y"), has(5, "y"), silent), keyspace.Partial, "x y", 5 * time.Second, "xxyy?"},
		{"a late loser", sourcesOf(has(5, "x"), has(5, "x"), has(5, "x"), has(9, "y"), silent), keyspace.Held, "x", 5 * time.Second, "xxxy?"},
		{"an early loser", sourcesOf(has(9, "b"), has(5, "x"), has(5, "x"), has(5, "x"), silent), keyspace.Held, "x", 5 * time.Second, "bxxx?"},
		{"half of them are no majority", sourcesOf(has(5, "x"), has(5, "x"), nothing, nothing), keyspace.Partial, "x", 5 * time.Second, "xx.."},
		{"for ever on one of them", sourcesOf(never("x"), has(3, "x"), has(6, "x"), nothing, nothing), keyspace.Held, "x", 3 * time.Second, "xxx.."},
		{"not looked through", sourcesOf(has(5, "x"), has(5, "x"), nothing, nothing, walking), keyspace.Partial, "x", 5 * time.Second, "xx..?"},
	} {
		s := snapshotOf(t, multiOf(MultiOptions{Mode: "redlock", Redlock: true}, c.servers))
		if len(s.Locks) != 1 {
			t.Errorf("%s: %d locks", c.name, len(s.Locks))
			continue
		}
		l := s.Locks[0]
		var holders []string
		for _, h := range l.Holders {
			holders = append(holders, h.ID)
		}
		got := strings.Join(holders, " ")
		check.True(t, got == c.holders && l.State(time.Time{}) == c.state && l.Kind == keyspace.Redlock,
			"%s: %s %s by %q, want %s by %q", c.name, l.Kind, l.State(time.Time{}), got, c.state, c.holders)
		left, _ := l.TTL(s.At)
		check.True(t, left == c.left, "%s: it has %v left, want %v", c.name, left, c.left)
		check.Equal(t, spelt(l.Votes), c.votes, "%s: the votes are", c.name)
		check.Equal(t, l.Node, "node1,node2,node3,node4,node5"[:6*len(c.servers)-1], "%s: it is on", c.name)
	}
}

// spelt returns votes as text: the token, "." for no token, "?" for no answer.
func spelt(votes []keyspace.Vote) string {
	out := ""
	for _, v := range votes {
		switch {
		case v.Unreachable:
			out += "?"
		case v.Token == "":
			out += "."
		default:
			out += v.Token
		}
	}
	return out
}

// The holder of a Redlock is merged from its nodes: it holds since it had a majority, with the
// highest count of any node, and the format with the highest confidence is used.
func TestTheHolderOfARedlockIsWhatItsServersSay(t *testing.T) {
	has := func(since time.Duration, count int, sure keyspace.Confidence) fixed {
		s := on("", start, 9, "a=x")
		s.Locks[0].Confidence = sure
		s.Locks[0].Holders[0].Since, s.Locks[0].Holders[0].Depth = start.Add(since), count
		return fixed{snap: s}
	}
	all := sourcesOf(has(-3*time.Second, 1, keyspace.Likely), has(-5*time.Second, 2, keyspace.Certain), has(-4*time.Second, 1, keyspace.Likely))
	l := snapshotOf(t, multiOf(MultiOptions{Redlock: true}, all)).Locks[0]
	h := l.Holders[0]
	check.True(t, h.Since.Equal(start.Add(-4*time.Second)) && h.Depth == 2 && l.Confidence == keyspace.Certain,
		"found %+v, %v", h, l.Confidence)
}

func TestAnEventOfARedlockIsReportedOnce(t *testing.T) {
	free, held := fixed{snap: on("", start, 5)}, fixed{snap: on("", start.Add(time.Second), 5, "a=x")}
	all := sourcesOf(free, free, free)
	f := multiOf(MultiOptions{Redlock: true}, all)
	snapshotOf(t, f)
	copy(all, sourcesOf(held, held, held))
	s := snapshotOf(t, f)
	check.True(t, len(s.Events) == 1 && s.Events[0].Kind == keyspace.Acquired && s.Events[0].Holder.ID == "x", "it tells of %+v", s.Events)
	check.Equal(t, s.Locks[0].Holders[0].Since, s.At, "it is held since")
}

// A value that is only possibly a lock is one if several nodes of a Redlock
// have it under the same key.
func TestOneValueOnSeveralServersMakesARedlock(t *testing.T) {
	const token = "0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e"
	possible := func(addr string, locks ...string) fixed {
		s := on(addr, time.Unix(1_700_000_000, 0), 9, locks...)
		for i := range s.Locks {
			s.Locks[i].Confidence = keyspace.Possible
		}
		return fixed{snap: s}
	}
	all := sourcesOf(possible("node1", "job="+token, "mark=1", "alone="+token), possible("node2", "job="+token, "mark=1"), possible("node3"))
	s := snapshotOf(t, multiOf(MultiOptions{Redlock: true, MinConfidence: keyspace.Likely}, all))
	check.True(t, len(s.Locks) == 1 && s.Locks[0].Key == "job" && s.Locks[0].Confidence == keyspace.Likely &&
		slices.Contains(s.Locks[0].Evidence, "2 of 3 servers have the same value"), "found %+v", s.Locks)
	s = snapshotOf(t, multiOf(MultiOptions{Redlock: true, MinConfidence: keyspace.Possible}, all))
	check.True(t, len(s.Locks) == 3, "with what is possible, found %+v", s.Locks)
}

func TestTheSlotsOfANodeAreRead(t *testing.T) {
	const nodes = "a 127.0.0.1:1@2 master - 0 0 1 connected 100-200 [3->-b]\n" +
		"b 127.0.0.1:3@4,host myself,master - 0 0 2 connected 5 7-9 16380-16383 [8->-c] [4-<-a]\n"
	s := slotsOf(nodes)
	for n, c := range map[int][3]bool{
		3: {}, 4: {false, true, false}, 5: {true}, 6: {}, 7: {true}, 8: {true, false, true}, 9: {true}, 10: {}, 100: {}, 16379: {}, 16383: {true},
	} {
		check.Equal(t, [3]bool{s.own[n], s.in[n], s.out[n]}, c, "of slot %d it is read", n)
	}
	m := s.movesSince(slotsOf("b 127.0.0.1:3@4 myself,master - 0 0 2 connected 5-8\n"))
	check.True(t, m.Came[4] && m.Came[9] && !m.Came[8] && m.Went[6] && m.Went[8] && !m.Went[5] && !passedThrough(m, nil),
		"the moves are wrong")
	for _, text := range []string{"", "b x myself", "b x myself,master - 0 0 2 connected -5 99999-999999 [", "b x myself,master - 0 0 2 connected 9-"} {
		slotsOf(text)
	}
}
