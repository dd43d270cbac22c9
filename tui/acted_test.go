package tui

import (
	"context"
	"errors"
	"testing"
	"time"

	"locktop/keyspace"
)

// slowExecutor has no answer for some keys, and looks only when it may.
type slowExecutor struct {
	*fakeExecutor
	results map[string]keyspace.AuditRecord
	answers chan struct{}
}

func (b *slowExecutor) Act(_ context.Context, act keyspace.Action, l keyspace.Lock, _ time.Duration) (keyspace.AuditRecord, error) {
	r := b.results[l.Key]
	r.Action = act
	if r.Outcome == keyspace.Done {
		return r, nil
	}
	return r, errors.New("read tcp: i/o timeout")
}

func (b *slowExecutor) Recheck(ctx context.Context, r keyspace.AuditRecord, l keyspace.Lock) (keyspace.Outcome, string, error) {
	select {
	case <-b.answers:
		return keyspace.Gone, b.found, nil
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
}

// An action without an answer is not told as one that is not done. The line stays until the next look has
// found what happened.
func TestTheScreenTellsAnActionWithoutAnAnswer(t *testing.T) {
	for _, found := range []string{"it is gone; whether this action did it is not known", "it is still held: not released so far"} {
		w, fake := writeConfig()
		fake.found = found
		b := &slowExecutor{fake, map[string]keyspace.AuditRecord{"job:nightly": {Outcome: keyspace.Unanswered}}, make(chan struct{})}
		w.Executor = b
		drive(t, w, func(d *driver) {
			b.answers = make(chan struct{})
			d.press("x", "r", "y").want("job:nightly: no answer: it may or may not be released").wantNot("0 of 1")
			d.wait(time.Minute).want("it may or may not be released")
			close(b.answers)
			d.wait(tickInterval).want("job:nightly: " + found).wantNot("no answer")
			d.wait(time.Minute).want("job:nightly: " + found).press("j").wantNot(found)
		})
	}
}

// Of several locks, those without an answer are counted apart, and those that are done are counted.
func TestTheScreenCountsTheOutcomesOfTaggedLocks(t *testing.T) {
	w, fake := writeConfig()
	w.Executor = &slowExecutor{fakeExecutor: fake, results: map[string]keyspace.AuditRecord{
		"job:nightly":      {Outcome: keyspace.Done},
		"lock:orders:4711": {Outcome: keyspace.Unanswered},
		"lock:mail":        {Outcome: keyspace.Failed},
	}}
	drive(t, w, func(d *driver) {
		for range d.app.live.locks {
			d.press("t")
		}
		d.press("x", "r", "y").want("1 done, ", "1 unknown; lock:orders:4711: no answer: it may or may not be released")
	})
}

// A Redlock without a majority of answers is named with its votes, before and after the action.
func TestTheScreenNamesTheServersOfARedlockThatAreMissing(t *testing.T) {
	l := mutex("pay:lock", "pay-7:52", time.Minute)
	l.Kind, l.Votes = keyspace.Redlock, []keyspace.Vote{{Node: "a:1", Token: l.Holders[0].ID}, {Node: "b:1", Unreachable: true}, {Node: "c:1", Unreachable: true}}
	w, fake := writeConfig()
	w.Source = holding(l)
	w.Executor = &slowExecutor{fakeExecutor: fake, results: map[string]keyspace.AuditRecord{
		"pay:lock": {Outcome: keyspace.Failed, Of: 3, Unanswered: []string{"b:1", "c:1"}},
	}}
	drive(t, w, func(d *driver) {
		d.press("x", "r").want("it is on 1 of 3 servers; 2 did not answer and may have it, too: b:1, c:1")
		d.press("y").want("pay:lock: not released: 2 of 3 servers did not answer and may hold a majority")
	})
}

func TestAReplicaIsRefusedBeforeTheQuestion(t *testing.T) {
	w, b := writeConfig()
	source := holding(mutex("job:nightly", "cron-3:9", time.Minute))
	source.edit = func(snap *keyspace.Snapshot) { snap.Server.Role, snap.Server.Master = "slave", "10.0.0.1:6379" }
	w.Source = source
	drive(t, w, func(d *driver) {
		d.press("x").want("this is a replica: start locktop on its master, 10.0.0.1:6379, to act").wantNot("release it")
		b.want(t)
	})
}
