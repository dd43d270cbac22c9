package clienttest

import (
	"fmt"
	"time"

	"locktop/internal/humanize"
)

// renewing extends a lease until the result is called, unless the client renews by itself.
// The result returns the first error of an extension.
func (h *hold) renewing() (end func() error) {
	if h.actor.rig.profile.Hello.Renews {
		return func() error { return nil }
	}
	over, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(h.actor.rig.ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-over:
				failed <- nil
				return
			case <-tick.C:
			}
			if err := h.extend(); err != nil {
				failed <- err
				return
			}
		}
	}()
	return func() error { close(over); return <-failed }
}

// by names what renews the leases.
func (r *rig) by() string {
	if r.profile.Hello.Renews {
		return "renewed by the library"
	}
	return "extended every " + humanize.Precise(r.ttl/3)
}

// renewal works for longer than the TTL.
func renewal(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	h := a.mustLock()
	end := h.renewing()
	work := 3 * r.ttl
	other := b.start(work + r.ttl)
	early := other.within(work)
	inside := time.Since(h.began)
	renewed := end()
	told := h.Context().Err() != nil
	err := h.unlock()
	text := fmt.Sprintf("%s worked for %s with a TTL of %s, %s", a.name, humanize.Precise(inside), humanize.Setting(r.ttl), r.by())
	switch {
	case early && other.err == nil && !r.profile.Hello.Renews && other.h.began.After(h.Deadline()):
		return inconclusive("%s: an extension came too late, the machine is too slow.", text)
	case early && other.err == nil:
		notice := "The client had not told the holder of a loss."
		if told {
			notice = "The client had told the holder of a loss."
		}
		return failed("%s, when %s got the lock, without any fault. %s", text, b.name, notice)
	case early:
		return inconclusive("%s; the other client stopped waiting: %v.", text, other.err)
	case renewed != nil:
		return failed("%s, when an extension %s, without any fault.", text, outcomeText(renewed))
	case err != nil:
		return failed("%s, and its release %s, without any fault.", text, outcomeText(err))
	}
	began := time.Now()
	<-other.done
	if other.err != nil {
		return failed("%s. The other client did not get the lock after the release: %v.", text, other.err)
	}
	text += fmt.Sprintf(", and %s got the lock %s after the release.", b.name, humanize.Precise(time.Since(began)))
	r.pause(r.ttl / 2) // a renewal of the first client would fall into it
	r.kept(other.h, fmt.Sprintf("%s It was inside for %s.", text, humanize.Precise(r.ttl/2)))
	return passed("%s", text)
}

// renewalLost deletes the key of a renewed lock.
func renewalLost(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	h := a.mustLock()
	own := r.names()
	r.deleteAll("the key is deleted")
	began := time.Now()
	text := fmt.Sprintf("The key of a lock that is %s was deleted", r.by())
	if !r.profile.Hello.Renews {
		if err := h.extend(); err == nil {
			return failed("%s, and the next extension reported success.", text)
		}
	}
	created := ""
	r.await(r.ttl, func() bool {
		for name := range r.names() {
			if own[name] && h.Context().Err() == nil {
				created = name
			}
		}
		return created != "" || h.Context().Err() != nil
	})
	if created != "" {
		return failed("%s. A renewal created %q again %s later.", text, created, humanize.Precise(time.Since(began)))
	}
	told := r.profile.Hello.Tells && h.told(r.ttl+tellWithin-time.Since(began))
	notice := time.Since(began)
	later := b.mustLock()
	r.pause(r.ttl / 2) // a renewal of the first client would fall into it
	text += fmt.Sprintf(", and %s locked %s later.", b.name, humanize.Precise(later.began.Sub(began)))
	refused := r.intruder(c, later, text)
	r.kept(later, text+" "+refused)
	switch {
	case told:
		return passed("%s The client had told %s of the loss %s after the deletion. %s", text, a.name, humanize.Precise(notice), refused)
	case r.profile.Hello.Tells:
		return failed("%s The client did not tell %s of the loss within %s, although hello says that it tells.", text, a.name, humanize.Precise(notice))
	case r.profile.Hello.Renews:
		return failed("%s The library renews, and does not tell its holder of the loss; the release of %s %s.", text, a.name, outcomeText(h.unlock()))
	}
	return passed("%s The extension after the deletion reported the loss. %s", text, refused)
}

// names returns the names of all keys.
func (r *rig) names() map[string]bool {
	all := make(map[string]bool)
	for _, rdb := range r.admin {
		for _, name := range rdb.Keys(r.ctx, "*").Val() {
			all[name] = true
		}
	}
	return all
}
