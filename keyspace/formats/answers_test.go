package formats_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/keyspace/release"
)

// tokenSeen is the canary of the tests of this file: no record of the audit log may contain it.
const tokenSeen, tokenNext = "3f2b8c6a-1d4e-4a7b-9c5d-8e0f2a4b6c8d", "0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e"

// faulty is a lock on a server behind a network that can be broken, and the executor for it.
type faulty struct {
	srv   *server.Child
	net   *netfault.Network
	admin server.Client // past the network
	exec  *release.Executor
	seen  keyspace.Lock
	log   *memoryLog
}

// answerLimit is the time limit of an answer. Nothing waits for it but what must not be answered.
const answerLimit = 300 * time.Millisecond

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{srv: servertest.RedisForTest(t), log: &memoryLog{}, net: netfault.New((&net.Dialer{}).DialContext)}
	f.admin = connect(t, f.srv.Addr())
	load(t, f.admin, []string{"SET", "lock:a", tokenSeen, "PX", "60000"})
	f.seen = only(t, f.admin, "lock:a")
	rdb := server.NewClient(f.srv.Addr(), server.ClientOptions{Dial: f.net.Dial, NoRetry: true, Timeout: answerLimit})
	t.Cleanup(func() { _ = rdb.Close() })
	for rdb.Ping(t.Context()).Err() != nil { // the connection exists when the fault begins
		check.NoError(t, t.Context().Err())
	}
	f.exec = release.NewExecutor(always(map[string]inspect.Client{f.srv.Addr(): rdb}), everyFormat, f.log)
	return f
}

// holds waits until the lock has a value, or none.
func (f *faulty) holds(t *testing.T, want string) {
	t.Helper()
	for f.admin.Get(t.Context(), "lock:a").Val() != want {
		check.NoError(t, t.Context().Err())
	}
}

// After a script without an answer nothing is known, and the look that follows tells what has happened.
func TestAnActionWithoutAnAnswerIsUnknownUntilALook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault, end func(*testing.T, *faulty)
		extends    time.Duration // 0 = it is released
		outcome    keyspace.Outcome
		says       string
		now        string
	}{
		"a stopped server runs the script when it goes on": {
			fault:   func(t *testing.T, f *faulty) { check.NoError(t, f.srv.Freeze()) },
			end:     func(t *testing.T, f *faulty) { check.NoError(t, f.srv.Continue()); f.holds(t, "") },
			outcome: keyspace.Gone, says: "it is gone; whether this action did it is not known", now: "not held any more",
		},
		"the answer is lost": {
			fault:   func(_ *testing.T, f *faulty) { f.net.FreezeReplies() },
			end:     func(t *testing.T, f *faulty) { f.holds(t, ""); f.net.Heal() },
			outcome: keyspace.Gone, says: "it is gone; whether this action did it is not known", now: "not held any more",
		},
		"the script is lost": {
			fault:   func(_ *testing.T, f *faulty) { f.net.Freeze() },
			end:     func(_ *testing.T, f *faulty) { f.net.Cut(); f.net.Heal() },
			outcome: keyspace.StillHeld, says: "it is still held: not released so far", now: "held by ? sha256:",
		},
		"another client acquires it meanwhile": {
			fault: func(_ *testing.T, f *faulty) { f.net.FreezeReplies() },
			end: func(t *testing.T, f *faulty) {
				f.holds(t, "")
				load(t, f.admin, []string{"SET", "lock:a", tokenNext, "PX", "60000"})
				f.net.Heal()
			},
			outcome: keyspace.Taken, says: "another holder has it: the hold that you saw has ended", now: "held by ? sha256:",
		},
		"an extend": {
			fault: func(_ *testing.T, f *faulty) { f.net.FreezeReplies() },
			end:   func(_ *testing.T, f *faulty) { f.net.Heal() }, extends: time.Hour,
			outcome: keyspace.StillHeld, says: "it is still held, and ends in 59 m", now: ", ends in 59 m",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t)
			c.fault(t, f)
			act := keyspace.ForceRelease
			if c.extends > 0 {
				act = keyspace.Extend
			}
			r, err := f.exec.Act(t.Context(), act, f.seen, c.extends)
			check.ErrorContains(t, err, "no answer: it may or may not be "+act.Past())
			check.Equal(t, r.Outcome, keyspace.Unanswered, "the outcome")

			brief, cancel := context.WithTimeout(t.Context(), answerLimit)
			defer cancel()
			_, _, err = f.exec.Recheck(brief, r, f.seen)
			check.True(t, err != nil && len(f.log.lines) == 2, "a recheck without an answer: %v, %+v", err, f.log.lines)

			c.end(t, f)
			_, said, err := f.exec.Recheck(t.Context(), r, f.seen)
			check.NoError(t, err)
			check.Contains(t, said, c.says)
			check.Equal(t, len(f.log.lines), 3, "records")
			for i, want := range []keyspace.Outcome{keyspace.Intended, keyspace.Unanswered, c.outcome} {
				check.True(t, f.log.lines[i].Outcome == want && f.log.lines[i].ID == r.ID, "record %d is %+v, want %s", i, f.log.lines[i], want)
			}
			check.Contains(t, f.log.lines[2].Now, c.now)
			f.log.hides(t, tokenSeen, tokenNext)
		})
	}
}

// hides fails the test if a record contains a token.
func (d *memoryLog) hides(t *testing.T, tokens ...string) {
	t.Helper()
	for _, r := range d.lines {
		for _, token := range tokens {
			check.False(t, strings.Contains(strings.Join(append(r.Holders, r.Now, r.Err, r.Lock.Key), " "), token), "%s: the record contains the token: %+v", r.Outcome, r)
		}
	}
}

// What was not sent has changed nothing.
func TestAnActionThatWasNotSentHasFailed(t *testing.T) {
	f := newFaulty(t)
	check.NoError(t, f.srv.Kill())
	r, err := f.exec.Act(t.Context(), keyspace.ForceRelease, f.seen, 0) // the first command of a broken connection is sent, as far as is known
	check.True(t, err != nil && r.Outcome != keyspace.Done, "%+v", r)
	r, err = f.exec.Act(t.Context(), keyspace.ForceRelease, f.seen, 0)
	check.ErrorContains(t, err, "connection refused")
	check.Equal(t, r.Outcome, keyspace.Failed, "the outcome")

	r, err = release.NewExecutor(always(nil), everyFormat, f.log).Act(t.Context(), keyspace.ForceRelease, f.seen, 0)
	check.ErrorContains(t, err, "there is no connection to the server")
	check.Equal(t, r.Outcome, keyspace.Failed, "the outcome without a client")

	before := len(f.log.lines)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.exec.Act(ended, keyspace.ForceRelease, f.seen, 0)
	check.ErrorContains(t, err, "nothing was changed")
	check.Equal(t, len(f.log.lines), before, "records after the end of the context")
}

// After a failover the lock is on another server than when the executor was made.
func TestAnExecutorFindsItsServerWhenItActs(t *testing.T) {
	f := newFaulty(t)
	nodes := map[string]inspect.Client{}
	e := release.NewExecutor(func(context.Context) map[string]inspect.Client { return nodes }, everyFormat, f.log)
	nodes = map[string]inspect.Client{f.srv.Addr(): f.admin}
	r, err := e.Act(t.Context(), keyspace.ForceRelease, f.seen, 0)
	check.NoError(t, err)
	check.Equal(t, r.Outcome, keyspace.Done, "the outcome")
}

// A Redlock is changed if a majority of all of its servers has answered so. A server that does not
// answer counts as one that has the lock as it was.
func TestARedlockIsChangedByAMajorityOfAllItsServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		frozen, dead     int // the last servers
		act              keyspace.Action
		ttl              time.Duration
		outcome          keyspace.Outcome
		done, unanswered int
		says             string
	}{
		{name: "release, three do not answer", frozen: 3, act: keyspace.ForceRelease, outcome: keyspace.Unanswered, done: 2, unanswered: 3,
			says: "not released: 3 of 5 servers did not answer and may hold a majority"},
		{name: "release, three are gone", dead: 3, act: keyspace.ForceRelease, outcome: keyspace.Failed, done: 2, unanswered: 3,
			says: "not released: 3 of 5 servers did not answer and may hold a majority"},
		{name: "release, two do not answer", frozen: 2, act: keyspace.ForceRelease, outcome: keyspace.Done, done: 3, unanswered: 2},
		{name: "release, two are gone", dead: 2, act: keyspace.ForceRelease, outcome: keyspace.Done, done: 3, unanswered: 2},
		{name: "extend, three do not answer", frozen: 3, act: keyspace.Extend, ttl: time.Hour, outcome: keyspace.Unanswered, done: 2, unanswered: 3,
			says: "not extended: 3 of 5 servers did not answer and may keep the old deadline"},
		{name: "extend, two are gone", dead: 2, act: keyspace.Extend, ttl: time.Hour, outcome: keyspace.Done, done: 3, unanswered: 2},
	} {
		t.Run(c.name, func(t *testing.T) { // one after the other: they have the same servers
			f := newFaultyRedlock(t, c.frozen, c.dead)
			r, err := f.exec.Act(t.Context(), c.act, f.seen, c.ttl)
			if c.says == "" {
				check.NoError(t, err)
			} else {
				check.ErrorContains(t, err, c.says)
			}
			check.True(t, r.Outcome == c.outcome && len(r.Nodes) == c.done && len(r.Unanswered) == c.unanswered && r.Of == 5, "it is %+v", r)
			if c.outcome != keyspace.Unanswered {
				return
			}
			for _, n := range f.nodes {
				check.NoError(t, n.Continue())
			}
			_, said, err := f.exec.Recheck(t.Context(), r, f.seen)
			check.NoError(t, err)
			last := f.log.lines[len(f.log.lines)-1]
			// The scripts of a stopped server run after it goes on, or were never sent: both are told.
			switch held := f.copies(t); {
			case r.Action == keyspace.Extend:
				check.True(t, last.Outcome == keyspace.StillHeld && strings.Contains(said, "it is still held, and ends in"), "%s: %+v", said, last)
			case held >= 3:
				check.True(t, last.Outcome == keyspace.StillHeld && len(last.Nodes) == held, "%s: %+v", said, last)
			default:
				check.True(t, last.Outcome == keyspace.Gone || last.Outcome == keyspace.StillHeld, "%s: %+v", said, last)
			}
		})
	}
}

// faultyRedlock is a Redlock on five servers of which the last ones do not answer.
type faultyRedlock struct {
	nodes []*server.Child
	exec  *release.Executor
	seen  keyspace.Lock
	log   *memoryLog
}

func newFaultyRedlock(t *testing.T, frozen, dead int) *faultyRedlock {
	t.Helper()
	f := &faultyRedlock{log: &memoryLog{}}
	f.seen = keyspace.Lock{Key: "lock:a", Format: "set-nx", Kind: keyspace.Redlock, Holders: []keyspace.Holder{{ID: tokenSeen, Depth: 1}}}
	nodes := make(map[string]inspect.Client)
	for i := range 5 {
		n := servertest.RedisForTest(t)
		f.nodes = append(f.nodes, n)
		admin := connect(t, n.Addr())
		load(t, admin, []string{"SET", "lock:a", tokenSeen, "PX", "60000"})
		f.seen.Expires = only(t, admin, "lock:a").Expires
		limit := 3 * answerLimit // in which the other servers answer
		if frozen == 0 {
			limit = time.Minute
		}
		rdb := server.NewClient(n.Addr(), server.ClientOptions{NoRetry: true, Timeout: limit})
		t.Cleanup(func() { _ = rdb.Close() })
		nodes[n.Addr()] = rdb
		vote := keyspace.Vote{Node: n.Addr(), Token: tokenSeen}
		switch {
		case i >= 5-dead:
			check.NoError(t, n.Kill())
			vote = keyspace.Vote{Node: n.Addr(), Unreachable: true}
		case i >= 5-frozen:
			check.NoError(t, n.Freeze())
			vote = keyspace.Vote{Node: n.Addr(), Unreachable: true}
		}
		f.seen.Votes = append(f.seen.Votes, vote)
	}
	f.exec = release.NewExecutor(always(nodes), everyFormat, f.log)
	return f
}

// copies returns on how many servers the lock is.
func (f *faultyRedlock) copies(t *testing.T) (n int) {
	t.Helper()
	for _, node := range f.nodes {
		n += int(connect(t, node.Addr()).Exists(t.Context(), "lock:a").Val())
	}
	return n
}
