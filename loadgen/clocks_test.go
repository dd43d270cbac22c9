package loadgen

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
)

// A hold has three ends: the end of the lease, the time when the holder learned
// it, and the time when the client left.
func TestAnEventHasTheDeadlineOfTheLeaseAndTheTimeOfItsNotification(t *testing.T) {
	second := time.Second
	for name, c := range map[string]struct {
		lock     Lock
		hold     time.Duration
		fault    Fault
		alter    func(*lease)
		how      EventKind
		deadline time.Duration // after the acquire
		told     time.Duration // after the acquire; 0: not notified
		left     time.Duration // after the acquire
	}{
		"released in time":        {Lock{TTL: 3 * second}, 100 * time.Millisecond, Fault{}, nil, Released, 3 * second, 0, 100 * time.Millisecond},
		"run out":                 {Lock{TTL: 3 * second, Renew: Renew{Off: true}}, 9 * second, Fault{}, nil, Expired, 3 * second, 3 * second, 3 * second},
		"frozen":                  {Lock{TTL: 3 * second, Renew: Renew{Off: true}}, 9 * second, Fault{At: second, Kind: Freeze, For: 5 * second}, nil, Expired, 3 * second, 6 * second, 6 * second},
		"frozen before it is due": {Lock{TTL: 3 * second, Renew: Renew{Off: true}}, 2 * second, Fault{At: second, Kind: Freeze, For: 5 * second}, nil, Expired, 3 * second, 6 * second, 6 * second},
		"not told":                {Lock{TTL: 3 * second, Renew: Renew{Off: true}}, 4 * second, Fault{}, unnotified, Expired, 3 * second, 0, 4 * second},
		"crashed":                 {Lock{TTL: 3 * second}, 9 * second, Fault{At: second, Kind: Crash}, nil, Abandoned, 0, 0, second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := Scenario{Clients: 1, Keys: Keys{N: 1}, Lock: c.lock, Hold: Const(c.hold), Think: Const(time.Hour)}
				if c.fault.Kind != "" {
					s.Faults = []Fault{c.fault}
				}
				how := open
				if c.alter != nil {
					how = openWrapped(c.alter)
				}
				r := check.Must(newRun(Servers{Redis: piped(t)}, s, how))(t)
				running(t, r)
				time.Sleep(20 * second)
				var began, ended Event
				for _, e := range r.Events(0) {
					switch e.Kind {
					case Acquired:
						began = e
					case Released, Expired, Lost, Abandoned:
						ended = e
					}
				}
				since := func(at time.Time) time.Duration {
					if at.IsZero() {
						return 0
					}
					return at.Sub(began.At)
				}
				near := func(got, want time.Duration) bool { return (got - want).Abs() < 50*time.Millisecond }
				check.True(t, near(since(began.Deadline), c.lock.TTL) && began.Told.IsZero(), "as it begins: until %s, told %s", since(began.Deadline), began.Told)
				if ended.Kind != c.how || !near(since(ended.Deadline), c.deadline) && c.how != Abandoned || !near(since(ended.Told), c.told) || !near(ended.Took, c.left) {
					t.Errorf("%s: until %s, told after %s, left after %s", ended.Kind, since(ended.Deadline), since(ended.Told), ended.Took)
				}
				m := r.Metrics()
				check.True(t, (m.Violations.Unnotified.Count > 0) == (c.alter != nil), "%d were not told", m.Violations.Unnotified.Count)

				var line map[string]string
				text, _ := json.Marshal(ended)
				_ = json.Unmarshal(text, &line) // fails for numbers, which are not needed
				at, _ := time.Parse(time.RFC3339Nano, line["deadline"])
				check.True(t, at.Equal(ended.Deadline), "deadline %s in %s", ended.Deadline, text)
				at, _ = time.Parse(time.RFC3339Nano, line["told"])
				check.True(t, at.Equal(ended.Told), "told %s in %s", ended.Told, text)
			})
		})
	}
}

func TestALostLeaseNotifiesItsHolderBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{
			Clients: 1, Keys: Keys{N: 1}, Lock: Lock{TTL: 9 * time.Second}, Hold: Const(time.Hour), Think: Const(time.Hour),
			Faults: []Fault{{At: time.Second, Kind: ExternalDelete}},
		})
		time.Sleep(9 * time.Second)
		for _, e := range r.Events(0) {
			check.True(t, e.Kind != Lost || !e.Told.IsZero() && e.Told.Before(e.Deadline) && !e.Told.After(e.At), "told %s, deadline %s, now %s", e.Told, e.Deadline, e.At)
		}
		check.Equal(t, r.Metrics().Lost, 1, "lost")
	})
}

// Clients of the closed model that started at the same time would stay synchronised.
func TestClientsOfTheClosedModelArriveOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{
			Clients: 10, Keys: Keys{N: MaxKeys}, Hold: Const(0), Think: Const(time.Second),
		})
		began := time.Now()
		time.Sleep(2950 * time.Millisecond)
		arrived := map[time.Duration]int{}
		for _, e := range r.Events(0) {
			if e.Kind == Arrived {
				arrived[e.At.Sub(began).Round(50*time.Millisecond)]++
			}
		}
		for tenth := range 29 {
			at := time.Duration(tenth) * 100 * time.Millisecond
			check.True(t, arrived[at] == 1, "%d clients arrived after %s", arrived[at], at)
		}
		r.SetClients(20) // the first attempts of new clients lie between those of the others
		time.Sleep(2 * time.Second)
		check.Between(t, r.Metrics().Arrivals, 29+20+10, 29+20+21, "arrivals")
	})
}

func TestWithARateNoClientThinksBeforeItArrives(t *testing.T) {
	m := after(t, Scenario{
		Clients: 10, Keys: Keys{N: MaxKeys}, Rate: 10, Hold: Const(950 * time.Millisecond), Think: Const(time.Hour),
	}, 990*time.Millisecond)[0]
	check.True(t, m.Arrivals == 10 && m.LateArrivals == 0 && m.Backlog == 0, "%d arrivals, %d of them late, %d without a client", m.Arrivals, m.LateArrivals, m.Backlog)
}

func TestALeavingClientDoesNotThinkFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{Clients: 2, Think: Const(time.Hour)})
		time.Sleep(time.Second)
		began := time.Now()
		stop(t, r)
		took := time.Since(began)
		check.True(t, took <= time.Second && context.Cause(t.Context()) == nil, "it took %s", took)
	})
}
