//go:build unix

package clienttest

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

// newRig returns a rig with a server of its own, for steps of a test on a client.
func newRig(t *testing.T, client string, ttl time.Duration) *rig {
	t.Helper()
	r := &rig{ctx: t.Context(), profile: profile{Command: command(client)}, ttl: ttl, began: time.Now()}
	r.judgeBy(1)
	t.Cleanup(r.close)
	check.NoError(t, r.open(oneServer))
	return r
}

// An intruder that gets the lock after the end of the lease, because the machine was too
// slow, is no failure.
func TestAnIntruderAfterTheEndOfTheLeaseIsNoFailure(t *testing.T) {
	testtier.Long(t, "a lease of the standard TTL ends")
	t.Parallel()
	r := newRig(t, "test:set/impolite", standardTTL)
	v := r.steps(func(r *rig) Verdict {
		a, b := r.actor(), r.actor()
		r.warm(b)
		return passed("%s", r.intruder(b, a.mustLock(), "A client asked."))
	})
	if v = r.judged(v); v.Outcome != Inconclusive || !strings.Contains(v.Evidence, "after the lease of client-1 had ended") {
		t.Errorf("%s: %s", v.Outcome, v.Evidence)
	}
}

// A holder whose lease ended before the intruder asked is not judged, either.
func TestAnIntruderIsNotAskedAfterTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	r := newRig(t, "test:set", short)
	v := r.steps(func(r *rig) Verdict {
		a, b := r.actor(), r.actor()
		r.warm(b)
		h := a.mustLock()
		r.await(standardTTL, func() bool { return !h.Valid() })
		return passed("%s", r.intruder(b, h, "A client asked."))
	})
	check.True(t, v.Outcome == Inconclusive && strings.Contains(v.Evidence, "ended before client-2 asked"), "%s: %s", v.Outcome, v.Evidence)
}

// The release of a lock after the end of its lease is no failure, whatever it reports.
func TestALossAfterTheEndOfTheLeaseIsNoFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, "test:set", short)
	v := r.steps(func(r *rig) Verdict {
		h := r.actor().mustLock()
		r.await(standardTTL, func() bool { return !h.Valid() && r.keys() == 0 })
		r.kept(h, "The lease ended.")
		return passed("")
	})
	check.Equal(t, v.Outcome, Pass, "%s", v.Evidence)
}
