package keyspace

import (
	"context"
	"time"
)

// What a call of Snapshot may spend on keys that are not known yet.
const (
	sliceMax   = 20 * time.Millisecond
	sliceShare = 10 // of the time since the last call: a tenth
)

// Follower keeps an eye on the locks that a scanner finds: at each call it
// reads the known ones again, and goes on walking over the keyspace for a
// while to find others. Locks come in as they are found.
//
// A Follower is for one caller at a time.
type Follower struct {
	scanner  *Scanner
	reader   reader
	pass     *pass // nil between two walks
	known    picture
	complete bool // the keyspace was walked over since the last error
	last     Snapshot
	habits   habits
	called   time.Time
}

// NewFollower returns a follower of what s finds. Nothing is sent yet.
func NewFollower(s *Scanner) *Follower {
	return &Follower{scanner: s, reader: s.reader()}
}

// Snapshot looks again and returns the picture. Its cost is that of the call,
// its progress that of the walk. It takes one round trip for every few hundred
// known locks, and some milliseconds for the walk.
//
// On error nothing of what is known is forgotten, and the next call goes on.
// But the picture is then incomplete until the whole keyspace was walked over
// again: nobody knows what happened meanwhile.
func (f *Follower) Snapshot(ctx context.Context) (Snapshot, error) {
	now, err := f.look(ctx)
	if err != nil {
		f.pass, f.complete, f.last.Complete = nil, false, false
		return Snapshot{}, err
	}
	now = continued(f.last, now)
	f.habits.learn(Diff(f.last, now))
	for i := range now.Locks {
		now.Locks[i].Typical = f.habits.typical(now.Locks[i].ID())
	}
	f.last = now
	return now, nil
}

// look takes the picture as it is now.
func (f *Follower) look(ctx context.Context) (Snapshot, error) {
	f.reader.reckon()
	if err := f.reread(ctx); err != nil {
		return Snapshot{}, err
	}
	p, err := f.explore(ctx, time.Now().Add(f.slice()))
	if err != nil {
		return Snapshot{}, err
	}
	p.cost.add(f.reader.reckon())
	return f.scanner.snapshot(p, f.known.locks(), f.complete), nil
}

// reread looks at the known locks again.
func (f *Follower) reread(ctx context.Context) error {
	refs := make([]ref, 0, len(f.known))
	for key, k := range f.known {
		refs = append(refs, ref{key, k.typ})
	}
	still, err := f.reader.take(ctx, refs)
	if err != nil {
		return err
	}
	f.known = make(picture, len(still))
	f.known.add(still)
	return nil
}

// explore walks on until the time is up or the walk is over, at least by one
// page, and takes in what it finds. It returns the walk; its cost is that of
// this call.
func (f *Follower) explore(ctx context.Context, until time.Time) (*pass, error) {
	if f.pass == nil || f.pass.done() {
		p, err := f.scanner.begin(ctx)
		if err != nil {
			return nil, err
		}
		f.pass = p
	} else {
		f.pass.cost.Commands, f.pass.cost.Took, f.pass.cost.Busy = 0, 0, 0
	}
	p := f.pass
	for !p.done() {
		locks, err := f.scanner.step(ctx, p)
		if err != nil {
			return nil, err
		}
		f.known.add(locks)
		if now := time.Now(); !now.Before(until) || !f.scanner.opts.Pace.ready(now) {
			break
		}
	}
	f.complete = f.complete || p.complete()
	return p, nil
}

// slice is how long a call may walk: as long as it may be while the first
// picture is incomplete, then a share of the time that has passed.
func (f *Follower) slice() time.Duration {
	now := time.Now()
	passed := now.Sub(f.called)
	f.called = now
	if !f.complete {
		return sliceMax
	}
	return min(passed/sliceShare, sliceMax)
}
