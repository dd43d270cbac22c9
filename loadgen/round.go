package loadgen

import (
	"context"
	"time"

	"locktop/loadgen/oracle"
)

// round is what the observers of a client see of one round, from the arrival to the release. A
// field is known from the step on that its comment names.
type round struct {
	client int // number
	iteration
	arrival
	names []string // of the keys
	keys  []int    // their numbers
	asked time.Time
	stay  context.Context // ends when the client must not wait any more
	ctx   context.Context // the same, or when its patience ends
	at    time.Time       // of the step

	hold  *oracle.Hold // the oracle makes it
	lease *lease       // entered
	seen  string       // entered: the ID of the hold on the witness, "" if it has not seen it

	fault    FaultKind // struck
	unaware  bool      // done: the client does not check its lease before it writes
	kept     bool      // left: the client still had the lock, as far as it knew
	left     time.Time // left
	deadline time.Time // left: of the lease
	told     time.Time // freed: when the lease notified the client of its end
	untold   bool      // freed: it did not
	decided  time.Time // freed: when the client decided to release; zero if it does not
	how      outcome   // acquired until it gives up, or until a fault or the release ends the hold
	err      error     // gaveUp and freed
}

// step is what happens in a round.
type step uint8

const (
	asked   step = iota // the client arrives and asks for its locks
	gaveUp              // it waits no longer, and has none
	entered             // it has got them, and is inside
	struck              // a fault affects it inside
	done                // its work is over
	left                // it has left, and is about to release
	freed               // it has released, or never will
)

// released reports whether the release succeeded, also of a lock that was lost before.
func (r *round) released() bool { return !r.decided.IsZero() && r.err == nil }

// tell tells all observers of a step.
func (f *fleet) tell(s step, r *round) {
	for _, observe := range f.observers {
		observe(s, r)
	}
}

// judge is the observer for the oracle.
func (f *fleet) judge(s step, r *round) {
	o, v := f.oracle, r.hold
	switch s {
	case asked:
		r.hold = o.Ask(oracle.Hold{Client: r.client, Shared: r.shared, Flaw: f.promise.flaw, Asked: r.asked, Ctx: r.ctx}, r.keys...)
	case gaveUp:
		o.GiveUp(v, r.at)
	case entered:
		v.Token, v.Fence, v.First, v.Lease = r.lease.token, r.lease.fence, r.lease.first, r.lease
		o.Enter(v, r.at)
	case struck:
		o.Faulted(v, string(r.fault))
	case left:
		if r.how == acquired {
			o.Write(v, !r.unaware && f.promise.sound, r.left)
		}
		o.Leave(v, r.left)
	case freed:
		f.judgeEnd(r)
	}
}

// judgeEnd tells the oracle how a hold has ended.
func (f *fleet) judgeEnd(r *round) {
	o, v := f.oracle, r.hold
	if r.untold {
		o.Unnotified(v, r.left)
	}
	if r.released() {
		o.Unlocked(v, r.decided, r.at)
	}
	if (r.how == lost || r.how == expired) && f.promise.renewed {
		found := r.left
		if r.kept { // the release found it: a fault may have struck meanwhile
			found = r.at
		}
		o.Lost(v, found)
	}
	switch r.how {
	case lost:
		o.Removed(v, r.at)
	case abandoned:
		o.Forgotten(v)
	}
}

// record is the observer for the history.
func (f *fleet) record(s step, r *round) {
	if s == freed {
		f.history.Record(r.hold, r.left, r.how == released)
	}
}

// show is the observer for the witness. Its replies are the first and the last of a work, also after
// the end of the run.
func (f *fleet) show(s step, r *round) {
	switch {
	case s == entered:
		r.seen = f.witness.Enter(context.Background(), r.client+1, r.names, r.shared)
	case s == done && r.how == acquired:
		f.witness.Leave(context.Background(), r.seen, r.lease.Valid)
	}
}
