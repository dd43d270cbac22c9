package clienttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"locktop/internal/humanize"
)

// tap sees the commands that a client sends, and can hold one of them back. The zero value
// passes all commands on. Safe for concurrent use.
type tap struct {
	mu      sync.Mutex
	names   []string      // since watch
	target  int           // the command to hold back, from 1; 0 = none
	reach   func()        // called when it is held back
	reached chan struct{} // closed then
	resume  chan error    // what happens to it: nil = it is passed on
}

// setUp are commands that belong to a connection, not to a lock.
var setUp = []string{"HELLO", "AUTH", "SELECT", "CLIENT", "PING", "COMMAND", "QUIT", "RESET"}

// before is the [netfault.Before] of the client.
func (t *tap) before(name string) func() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(setUp, name) {
		return nil
	}
	t.names = append(t.names, name)
	if t.target == 0 || len(t.names) != t.target {
		return nil
	}
	reach, reached, resume := t.reach, t.reached, t.resume
	return func() error {
		reach()
		close(reached)
		return <-resume
	}
}

// watch begins to record commands.
func (t *tap) watch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names, t.target = nil, 0
}

// seen returns the commands since watch, and ends the recording.
func (t *tap) seen() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.names)
}

// hold begins to record commands, and holds back number n of them, counted from 1: it calls
// reach and closes reached, and the command waits for pass.
func (t *tap) hold(n int, reach func()) (reached <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names, t.target, t.reach = nil, n, reach
	t.reached, t.resume = make(chan struct{}), make(chan error, 1)
	return t.reached
}

// pass lets the command that is held back go on or, with an error, drops it with its
// connection. It does nothing if there is none.
func (t *tap) pass(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.target = 0
	if t.resume != nil {
		select {
		case t.resume <- err:
		default:
		}
	}
}

var errDropped = errors.New("the client is dead")

// mostBetween bounds the commands of an acquire or a release before which a client is
// stopped.
const mostBetween = 5

// awaitReached waits until a command is held back, and reports whether it was before the
// request was over.
func (r *rig) awaitReached(reached, over <-chan struct{}) bool {
	select {
	case <-reached:
		return true
	case <-over:
	case <-r.ctx.Done():
	}
	return false
}

// betweenAcquire kills clients between two commands of an acquire.
func betweenAcquire(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	a.tap.watch()
	h := a.mustLock()
	names := a.tap.seen()
	h.mustUnlock()
	text := fmt.Sprintf("An acquire of a free lock is %s.", commandList(names))
	for n := 2; n <= min(len(names), mostBetween); n++ {
		victim := r.actor()
		r.warm(victim)
		reached := victim.tap.hold(n, func() {})
		request := victim.start(short)
		if !r.awaitReached(reached, request.done) {
			text += fmt.Sprintf(" This time there was no command %d.", n)
			if request.h != nil {
				_ = request.h.unlock()
			}
			continue
		}
		victim.kill()
		victim.tap.pass(errDropped)
		<-request.done
		next, took := r.next(b, time.Now(), fmt.Sprintf("the crash of %s before %s (an acquire is %s)", victim.name, names[n-1], commandList(names)))
		text += fmt.Sprintf(" %s crashed before %s, and %s got the lock %s later.", victim.name, names[n-1], b.name, humanize.Precise(took))
		r.kept(next, text)
	}
	return passed("%s", text)
}

// betweenWait kills waiters between two commands of the acquire after the release.
func betweenWait(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	text := ""
	tried := make(map[string]bool) // commands before which a waiter was killed
	for n, victims := 2, 0; n <= mostBetween && victims < mostVictims; victims++ {
		victim := r.actor()
		r.warm(victim)
		request, reached := r.releaseTo(a, victim, n)
		if !reached {
			if request.h == nil {
				return inconclusive("%s waited, and did not get the lock: %v.", victim.name, request.err)
			}
			names := victim.tap.seen()
			again := slices.IndexFunc(names[min(1, len(names)):], func(name string) bool { return !tried[name] })
			if again < 0 {
				return passed("A waiter got the lock, after the release, with %s.%s", commandList(names), text)
			}
			n = again + 2 // an attempt that came before the release was counted
			_ = request.h.unlock()
			continue
		}
		names := victim.tap.seen()
		tried[names[n-1]] = true
		n++
		victim.kill()
		victim.tap.pass(errDropped)
		<-request.done
		next, took := r.next(b, time.Now(), fmt.Sprintf("the crash of %s, a waiter, before the last of the commands after the release (%s)", victim.name, commandList(names)))
		text += fmt.Sprintf(" A waiter crashed before the last of the commands after the release (%s), and %s got the lock %s later.", commandList(names), b.name, humanize.Precise(took))
		r.kept(next, text)
	}
	return passed("%s", strings.TrimSpace(text))
}

// mostVictims bounds the waiters that betweenWait kills.
const mostVictims = 8

// releaseTo lets a holder release a lock for which the victim waits, and reports whether the
// victim reached its command number n after the release, which is then held back. Otherwise
// its request is over.
func (r *rig) releaseTo(holder, victim *actor, n int) (request *asked, reached bool) {
	h := holder.mustLock()
	request = victim.start(r.ttl)
	r.pause(short) // for which it waits
	releasing := holder.tap.hold(1, func() {})
	release := h.unlocking()
	r.awaitReached(releasing, release.done)
	held := victim.tap.hold(n, func() {})
	holder.tap.pass(nil)
	<-release.done
	if release.err != nil {
		giveUp("The release of a lock %s.", outcomeText(release.err))
	}
	return request, r.awaitReached(held, request.done)
}

// betweenRelease freezes a client between two commands of a release.
func betweenRelease(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	r.warm(a, b, c)
	h := a.mustLock()
	a.tap.watch()
	h.mustUnlock()
	names := a.tap.seen()
	text := fmt.Sprintf("A release is %s.", commandList(names))
	for n := 2; n <= min(len(names), mostBetween); n++ {
		h := a.mustLock()
		reached := a.tap.hold(n, a.freeze)
		release := h.unlocking()
		if !r.awaitReached(reached, release.done) {
			text += fmt.Sprintf(" This time there was no command %d.", n)
			continue
		}
		later, took := r.next(b, time.Now(), fmt.Sprintf("the freeze of its holder before %s (a release is %s)", names[n-1], commandList(names)))
		a.thaw()
		a.tap.pass(nil)
		<-release.done
		text += fmt.Sprintf(" %s was frozen before %s, and %s got the lock after %s. Then %s went on, and its release %s.",
			a.name, names[n-1], b.name, humanize.Precise(took), a.name, outcomeText(release.err))
		r.kept(later, text+" "+r.intruder(c, later, text))
	}
	return passed("%s", text)
}

// commandList describes the commands of a request.
func commandList(names []string) string {
	switch len(names) {
	case 0:
		return "no command"
	case 1:
		return "one command, " + names[0]
	}
	return fmt.Sprintf("%d commands: %s", len(names), strings.Join(names, ", "))
}
