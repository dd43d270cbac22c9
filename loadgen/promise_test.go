package loadgen

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// wrapped is a session of package lock with changed leases.
type wrapped struct {
	session
	alter func(*lease)
}

func openWrapped(alter func(*lease)) func(sessionConfig) (session, error) {
	return func(o sessionConfig) (session, error) {
		inner, err := open(o)
		return wrapped{inner, alter}, err
	}
}

func (a wrapped) as(id clientIdentity) session { return wrapped{a.session.as(id), a.alter} }

func (a wrapped) lock(ctx context.Context, keys []string, shared bool) (*lease, error) {
	l, err := a.session.lock(ctx, keys, shared)
	if err == nil {
		a.alter(l)
	}
	return l, err
}

// endless is a lease whose context never ends.
type endless struct{ lives }

func (endless) Context() context.Context { return context.Background() }

func unnotified(l *lease) { l.lives = endless{l.lives} }

// freedEarly makes the lease one of a reentrant lock that the first release frees.
func freedEarly(l *lease, rdb *redis.Client) {
	again := l.again
	l.again = func(ctx context.Context) (*lease, error) {
		inner, err := again(ctx)
		if err == nil {
			unlock := inner.unlock
			inner.unlock = func(ctx context.Context) error {
				rdb.Del(ctx, l.lives.(*lock.Lease).Key())
				return unlock(ctx)
			}
		}
		return inner, err
	}
}

// openUnordered opens a Mutex whose waiters ask seldom, in place of a fair lock.
func openUnordered(o sessionConfig) (session, error) {
	o.scenario.Lock.Kind, o.scenario.Lock.Wait = Mutex, Wait{Poll: time.Second}
	return open(o)
}

// Four broken locks that an audit did not find. Each differs in one line from a sound one.
func TestALockThatBreaksAnotherPromiseThanExclusionIsFlagged(t *testing.T) {
	testtier.Long(t, "it runs broken locks until they are found")
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	deleting := closing(t, redis.NewClient(&redis.Options{Addr: addr}))
	for _, c := range []struct {
		name  string
		s     Scenario
		open  func(sessionConfig) (session, error)
		found func(Metrics) int64
		says  string
	}{
		{
			"a context that never ends",
			Scenario{Lock: Lock{TTL: 300 * time.Millisecond, Renew: Renew{Off: true}}, Hold: Const(700 * time.Millisecond)},
			openWrapped(unnotified),
			func(m Metrics) int64 { return min(m.Violations.Unnotified.Count, m.Violations.WorkOverlap.Count) },
			"worked at the same time",
		},
		{
			"a reentrant lock that its first release frees",
			Scenario{Lock: Lock{Kind: Reentrant, TTL: 2 * time.Second}, Depth: 3},
			openWrapped(func(l *lease) { freedEarly(l, deleting) }),
			func(m Metrics) int64 { return m.Violations.UnexplainedLoss.Count },
			"no fault explains",
		},
		{
			"no order among waiters",
			Scenario{Lock: Lock{Kind: Fair}, Hold: Const(20 * time.Millisecond)},
			openUnordered,
			func(m Metrics) int64 { return m.Violations.Overtaken.Count },
			"in the queue first",
		},
		{
			"a number that never rises",
			Scenario{Lock: Lock{Fence: true}},
			openWrapped(func(l *lease) { l.fence = 7 }),
			func(m Metrics) int64 { return m.Violations.FenceOrder.Count },
			"not larger than the previous one",
		},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			s := c.s
			s.Clients, s.Keys = 8, Keys{N: 1}
			s.Hold, s.Think = cmp.Or(s.Hold, Const(5*time.Millisecond)), Exp(5*time.Millisecond)
			s.Duration = 3 * time.Second
			on := Servers{Redis: connect(t, addr)}
			var m Metrics
			for try := 0; try < 5 && c.found(m) == 0; try++ { // a stall of the machine, or a late answer, excuses the lock
				m = ended(newRun(on, s, c.open))(t).Metrics()
			}
			v := m.Verdict(s)
			if c.found(m) == 0 || v.Safe || v.Harmless || strings.Contains(v.Text(), "No two clients were inside") != (m.Violations.WorkOverlap.Count == 0) {
				t.Errorf("not flagged: %s %+v", v.Text(), m)
			}
			check.Contains(t, v.Text(), c.says, "the verdict")
			check.True(t, len(m.Violations.Evidence) != 0, "there is no evidence")

			// The unchanged lock keeps the same promise.
			sound := ended(New(on, s))(t)
			m = sound.Metrics()
			check.True(t, m.Verdict(s).Safe && m.Acquired >= 5, "%d acquired: %s %+v", m.Acquired, m.Verdict(s).Text(), m.Violations.Evidence)
		})
	}
}
