//go:build unix

package incidents

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/lab/internal/labtest"
)

// staged is an incident on real servers.
type staged struct {
	cause incident.Cause
	how   string                    // in which it differs from the others of its cause
	says  string                    // part of the story
	on    func(t *testing.T) *scene // nil: one server
	play  func(s *scene)
}

// commonest are incidents as most operators have them, one for each cause of one server.
func commonest() []staged {
	return []staged{
		{incident.HolderGone, "with a waiter", "The connection of worker-7, which held lock:nightly, had ended by", nil, func(s *scene) {
			holder := s.hold(20 * time.Second) // a busy recorder sees its connection and the end of it
			s.wait("worker-2", 0)
			s.recorded("its connection", isConnected)
			_ = holder.Close()
			story := s.explained(incident.HolderGone)
			check.True(s, story.WaitedMS != nil && story.ClientCount == 1, "it says %+v", story)
		}},
		{incident.ExpiredConnected, "that renewed", "worker-7 held lock:nightly until its lease ran out", nil, func(s *scene) {
			holder := s.hold(8 * time.Second)
			s.wait("worker-2", 0)
			s.renew(holder, 10, 8*time.Second) // then it does nothing, and stays connected
			s.recorded("its connection", func(l *keyspace.Lock) bool { return isConnected(l) && l.Renewals > 5 })
			story := s.explained(incident.ExpiredConnected)
			check.True(s, story.WaitedAtMost && *story.WaitedMS >= 6000 && *story.WaitedMS <= 9000, "it says %+v", story)
		}},
		{incident.Evicted, "", "evicted (maxmemory-policy volatile-ttl)", func(t *testing.T) *scene {
			return newScene(t, "--maxmemory-policy", "volatile-ttl", "--maxmemory", "100mb", "--notify-keyspace-events", "Ee")
		}, func(s *scene) {
			s.hold(time.Minute)
			s.recorded("the lock", isConnected)
			s.do("CONFIG SET maxmemory 1mb")
			s.rdb.Set(s.Context(), "ordinary", strings.Repeat("x", 2000), 0) // it evicts what expires soonest
		}},
		{incident.Deleted, "", "A client deleted", nil, func(s *scene) {
			s.waitBehind("worker-3")
			s.do("DEL " + sceneKey)
		}},
		{incident.Expired, "killed, without a name", "no connection with the name worker-7 was seen. CLIENT SETNAME gives", nil, func(s *scene) { // killed, but without a name
			holder := s.holdAs("", 3*time.Second)
			s.recorded("the lock", hasHolder)
			_ = holder.Close()
		}},
		{incident.RenewalsStopped, "without a name", "no connection with the name worker-7", nil, func(s *scene) {
			s.renew(s.holdAs("", 2*time.Second), 6, 2*time.Second)
		}},
		{incident.NeverExpires, "", "The connection of worker-7, which held lock:nightly, had ended by", nil, func(s *scene) {
			holder := s.hold(0)
			s.recorded("its connection", isConnected)
			_ = holder.Close()
		}},
		{incident.TTLTooShort, "", "is too short", nil, func(s *scene) {
			s.hold(3 * time.Second) // it works for longer
			s.wait("worker-2", 2*time.Second)
		}},
		{incident.Overdue, "", "worker-2 held lock:nightly for", nil, func(s *scene) {
			s.takeTurns(7)
			s.wait("worker-2", 7*time.Second)
			s.recorded("a hold", hasHolder)
			s.wait("worker-2", 0)
		}},
		{incident.SlowHandOff, "a message that is lost", "Nobody held lock:nightly from", nil, func(s *scene) { // the waiter has missed the message
			s.fair(sceneKey, 1, 2)
			s.recorded("a waiter", isWaitedFor)
			s.do("DEL "+sceneKey, "PUBLISH redisson_lock__channel:{"+sceneKey+"} 0")
			free := func(l *keyspace.Lock) bool { return len(l.Holders) == 0 }
			s.recorded("a free lock", free)
			s.recordedUntil(3*time.Second, free)
			s.do("DEL redisson_lock_queue:{"+sceneKey+"} redisson_lock_timeout:{"+sceneKey+"}", "HSET "+sceneKey+" 205b3d04-2e62-4ac4-93f7-8a1d1c8bb0f4:1 1", "PEXPIRE "+sceneKey+" 60000")
			s.recorded("the next holder", hasHolder)
			s.do("DEL "+sceneKey, "PUBLISH redisson_lock__channel:{"+sceneKey+"} 0")
		}},
		{incident.Deadlock, "of two", "was in a deadlock of 2 owners", nil, func(s *scene) {
			s.fair(sceneKey, 1, 2)
			s.fair("lock:other", 2, 1)
			s.recordedUntil(4*time.Second, isWaitedFor)
			s.do("DEL lock:other redisson_lock_queue:{lock:other} redisson_lock_timeout:{lock:other}", "DEL redisson_lock_queue:{"+sceneKey+"} redisson_lock_timeout:{"+sceneKey+"}")
		}},
		{incident.Flushed, "", "The database was emptied", nil, func(s *scene) {
			s.hold(time.Minute)
			s.recorded("the lock", isConnected)
			s.do("FLUSHDB")
		}},
		{incident.Restart, "", "A restart of the server lost lock:nightly", nil, func(s *scene) {
			s.hold(time.Minute)
			s.recorded("the lock", isConnected)
			check.NoError(s.T, errors.Join(s.server.Kill(), s.server.Restart(s.Context())))
		}},
		{incident.Stolen, "", "from worker-3, which had not released it", nil, func(s *scene) {
			s.waitBehind("worker-3")
			s.do("SET " + sceneKey + " " + tokenOf("thief") + " PX 60000")
		}},
	}
}

// tellEach plays incidents, and fails for each whose cause is not named.
func tellEach(t *testing.T, all []staged) {
	var named atomic.Int64
	room := make(chan struct{}, 4) // a recorder without a share of the processor is late, and a late one cannot tell much
	t.Cleanup(func() { t.Logf("the cause of %d of %d incidents is named", named.Load(), len(all)) })
	for _, one := range all {
		t.Run(strings.TrimSpace(string(one.cause)+" "+one.how), func(t *testing.T) {
			t.Parallel()
			room <- struct{}{}
			defer func() { <-room }()
			on := one.on
			if on == nil {
				on = func(t *testing.T) *scene { return newScene(t) }
			}
			s := on(t)
			one.play(s)
			if text := fmt.Sprint(s.explained(one.cause)); !strings.Contains(text, one.says) {
				t.Errorf("no %q in %s", one.says, text)
			} else {
				named.Add(1)
			}
		})
	}
}

func TestEveryCauseIsStagedOnRealServers(t *testing.T) {
	all := append(commonest(), variants()...)
	for _, p := range keyspace.Causes() {
		c := incident.Cause(p.ID)
		check.True(t, c == incident.Lost || c == incident.PossibleDeadlock || slices.ContainsFunc(all, func(one staged) bool { return one.cause == c }), "%s is not staged", c)
	}
	check.True(t, len(all) >= 30, "%d incidents are staged", len(all))
}

// Real clients have the commonest incidents on a real server; the recorder of the program
// records them, and explain names their causes and costs.
func TestExplainNamesWhatRealClientsDid(t *testing.T) {
	testtier.Long(t, "locks expire in real time")
	t.Parallel()
	tellEach(t, commonest())
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		s := newScene(t)
		s.takeTurns(5)
		var got labtest.Outcome
		labtest.Within(t, labtest.LongestWait, func() bool { // until the holds are recorded
			got = s.explain()
			return strings.Contains(got.Out, "holds ended")
		})
		check.True(t, got.Code == 0 && strings.HasPrefix(got.Out, "No incident from "), "it says %+v", got)
	})
}

// With LOCKTOP_PROOF: further incidents of the same causes, of other libraries, with other timings,
// and in other topologies, are named, too.
func TestExplainNamesTheCauseOfEveryVariant(t *testing.T) {
	testtier.Proof(t, "it plays 30 incidents on real servers")
	tellEach(t, variants())
}
