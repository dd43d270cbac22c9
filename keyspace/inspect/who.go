package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/keyspace"
)

// ErrMayNotList means that this user may not run CLIENT LIST.
var ErrMayNotList = errors.New("this user may not run CLIENT LIST")

// ErrNoClientList means that the server does not have CLIENT LIST: the command is renamed.
var ErrNoClientList = errors.New("the server does not have CLIENT LIST")

// TooManyClientsError means that a list of the clients would keep the server busy for too
// long.
type TooManyClientsError struct{ Clients, Limit int64 }

func (e TooManyClientsError) Error() string {
	return fmt.Sprintf("%s clients are too many to list: the limit is %s", humanize.Count(e.Clients), humanize.Count(e.Limit))
}

// maxClientsForOne is the limit of one list that a user asks for.
const maxClientsForOne = 2 * maxClientList

// maxClientsWait is how long a list of the clients waits for the budget. While a server is slow, the budget may
// allow nothing for minutes, and one list costs little.
const maxClientsWait = 2 * time.Second

// Clients lists the clients of the server, as soon as the budget allows it, or maxClientsWait has passed; if the list would be
// too long, only those with the known IDs, and all is false. It returns [ErrMayNotList] without
// the permission, and a [TooManyClientsError] if the server cannot list some clients only, or no
// ID is known.
func (s *Scanner) Clients(ctx context.Context, known []int64) (list []keyspace.Client, all bool, err error) {
	within, stop := context.WithTimeout(ctx, maxClientsWait)
	_ = s.opts.Budget.wait(within, time.Now())
	stop()
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	conn := s.newConn()
	defer func() { s.opts.Budget.charge(conn.serverTime, conn.networkTime, time.Now()) }()
	n, err := conn.countClients(ctx)
	if err != nil {
		return nil, false, err
	}
	if n <= maxClientsForOne {
		list, err = conn.clients(ctx, nil)
		return list, true, err
	}
	if len(known) > 0 {
		var text string
		if text, err = conn.clientList(ctx, known); err == nil {
			return keyspace.ParseClients(text), false, nil
		}
	}
	if _, refused := errors.AsType[redis.Error](err); err != nil && !refused {
		return nil, false, err
	}
	return nil, false, TooManyClientsError{n, maxClientsForOne}
}

// countClients returns the number of clients; 0 if the server does not say it.
func (c *meteredConn) countClients(ctx context.Context) (int64, error) {
	var info *redis.StringCmd
	err := c.pipelined(ctx, "count clients", func(p redis.Pipeliner) { info = p.Info(ctx, "clients") })
	if err != nil {
		return 0, err
	}
	count, _ := InfoValue(info.Val(), "connected_clients")
	return number(count), nil
}

// clients lists the clients with some IDs, or all. Redis 6.0 lists all in any case.
func (c *meteredConn) clients(ctx context.Context, ids []int64) ([]keyspace.Client, error) {
	if c.listsAll {
		ids = nil
	}
	list, err := c.clientList(ctx, ids)
	if _, refused := errors.AsType[redis.Error](err); refused && len(ids) > 0 && !isCommandDenied(err) {
		c.listsAll = true
		list, err = c.clientList(ctx, nil)
	}
	switch {
	case isUnknownCommand(err):
		return nil, ErrNoClientList
	case isCommandDenied(err):
		return nil, ErrMayNotList
	case err != nil:
		return nil, fmt.Errorf("list clients: %w", err)
	}
	return keyspace.ParseClients(list), nil
}

func (c *meteredConn) clientList(ctx context.Context, ids []int64) (string, error) {
	argv := []any{"client", "list"}
	if len(ids) > 0 {
		argv = append(argv, "id")
	}
	for _, id := range ids {
		argv = append(argv, id)
	}
	var list *redis.Cmd
	err := c.pipelined(ctx, "list clients", func(p redis.Pipeliner) { list = p.Do(ctx, argv...) })
	if err != nil {
		return "", err
	}
	text, err := list.Text()
	return strings.TrimPrefix(text, "txt:"), err
}

// Investigation is what [Scanner.WatchHolder] has seen so far.
type Investigation struct {
	keyspace.Suspicion
	Lock keyspace.Lock // as last read; without holders: the lock is free
}

// Times between two lists of the suspects, and of all clients.
const (
	pollSuspects         = 20 * time.Millisecond
	pollSuspectsExpected = 2 * time.Millisecond // while the next change is expected
	pollAll              = 100 * time.Millisecond
	pollAllExpected      = 10 * time.Millisecond
)

// Times of the lists around the expected time of a change.
const (
	expectWithin = 100 * time.Millisecond // before and after it, the clients are listed more often
	justBefore   = 30 * time.Millisecond  // before it, they are listed once although the budget is used up
)

// WatchHolder watches a lock until the client of one of its holders is named by
// coincidence, until a span has passed since the watch has begun, or until ctx ends, which
// is not an error. It lists the clients again and again, and just after each change of the
// hold; see [keyspace.Suspects]. It calls progress after each change. The changes of other
// locks that the same client holds count, too, as far as they are on the same server, in
// the same database and of the same format.
//
// It starts again when another owner acquires the lock. It returns an error if the server
// does not report changes, if the clients cannot be listed, if they are too many, if the
// deadlines do not show which of several holders has made a change, or if ctx ends before
// the server has answered.
func (s *Scanner) WatchHolder(ctx context.Context, l keyspace.Lock, holder keyspace.Holder, others []*keyspace.Lock, span time.Duration, progress func(Investigation)) (Investigation, error) {
	w, err := s.newHolderWatch(ctx, l, holder, others)
	if err == nil {
		defer w.changes.close()
		err = w.start(ctx)
	}
	switch {
	case err != nil && hasEnded(ctx):
		return Investigation{}, errors.New("the watch ended before it had begun")
	case err != nil:
		return Investigation{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	tick := time.NewTicker(pollSuspectsExpected)
	defer tick.Stop()
	for !w.seen().Named && w.seen().Renewers == nil {
		select {
		case <-ctx.Done():
			return w.seen(), nil
		case <-w.changes.ended:
			return w.seen(), w.trackingLost()
		case <-w.changes.wake:
		case <-tick.C:
		}
		before := w.seen().Changes
		err := w.look(ctx)
		if hasEnded(ctx) {
			return w.seen(), nil
		}
		if err != nil {
			return w.seen(), err
		}
		if w.seen().Changes != before {
			progress(w.seen())
		}
	}
	return w.seen(), nil
}

// holderWatch is a call of WatchHolder.
type holderWatch struct {
	scanner  *Scanner
	conn     meteredConn
	changes  *invalidationConn
	key      string           // of the lock in question
	typ      string           // of its key
	locks    map[string]*held // by key: this one and the others of the same owner
	suspects *keyspace.Suspects
	listedAt time.Time
	expected time.Time // of the next change, as far as it is known
	marks    int       // number of the last mark sent
	received int       // the last mark that came back
}

// held is a lock that the holder in question holds.
type held struct {
	lock   keyspace.Lock // as last read
	holder keyspace.Holder
}

func (s *Scanner) newHolderWatch(ctx context.Context, l keyspace.Lock, holder keyspace.Holder, others []*keyspace.Lock) (*holderWatch, error) {
	if !attributable(l, holder) {
		return nil, errors.New("its holders share one deadline, so a change does not show which of them made it")
	}
	o, err := optionsOf(s.rdb)
	if err != nil {
		return nil, err
	}
	w := &holderWatch{scanner: s, conn: s.newConn(), key: l.Key, locks: map[string]*held{l.Key: {l, holder}}}
	n, err := w.conn.countClients(ctx)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, errors.New("this user may not run INFO, so the number of clients is not known")
	case n > maxClientsForOne:
		return nil, TooManyClientsError{n, maxClientsForOne}
	}
	if w.typ, err = s.rdb.Type(ctx, l.Key).Result(); err != nil {
		return nil, err
	}
	w.suspects = keyspace.NewSuspects(w.typ)
	w.addOthers(others)
	w.changes = dialInvalidations(o, withoutCovered(slices.Collect(maps.Keys(w.locks))), nil, make(chan struct{}, 1))
	return w, nil
}

// attributable reports whether the deadline of a holder is its own, so that it shows the
// changes that this holder makes.
func attributable(l keyspace.Lock, h keyspace.Holder) bool {
	return len(l.Holders) <= 1 || !h.Expires.Equal(l.Expires)
}

// addOthers adds the locks that the same client holds.
func (w *holderWatch) addOthers(others []*keyspace.Lock) {
	this := *w.locks[w.key]
	for _, l := range others {
		if len(w.locks) > 20 {
			return
		}
		i := slices.IndexFunc(l.Holders, this.holder.SameOwner)
		if i < 0 || w.locks[l.Key] != nil || l.Node != this.lock.Node || l.DB != this.lock.DB || l.Format != this.lock.Format || !attributable(*l, l.Holders[i]) {
			continue
		}
		w.locks[l.Key] = &held{*l, l.Holders[i]}
	}
}

// start waits until the server reports changes, and makes sure that the clients can be
// listed.
func (w *holderWatch) start(ctx context.Context) error {
	select {
	case <-w.changes.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err, ended := w.changes.closedWith(); ended {
		return fmt.Errorf("connect for client tracking: %w", err)
	}
	if err := w.changes.current().trackErr; err != nil {
		return fmt.Errorf("the server does not report changes: %w", err)
	}
	_, err := w.conn.clients(ctx, []int64{1})
	return err
}

func (w *holderWatch) trackingLost() error {
	err, _ := w.changes.closedWith()
	return fmt.Errorf("the connection for client tracking is lost: %w", err)
}

// takeChanges returns the keys of the locks that were changed since the last call.
func (w *holderWatch) takeChanges() (changed []string) {
	c := w.changes.drain()
	w.received = max(w.received, c.mark)
	for key := range w.locks {
		if _, is := c.of[key]; is || c.flushed {
			changed = append(changed, key)
		}
	}
	return changed
}

// look lists the clients that matter: immediately after a change, otherwise if it is time for
// the next list and the budget allows it.
func (w *holderWatch) look(ctx context.Context) error {
	changed := w.takeChanges()
	if len(changed) == 0 && !w.due(time.Now()) {
		return nil
	}
	for n := 1; ; n++ {
		w.listedAt = time.Now()
		list, err := w.conn.clients(ctx, w.suspects.IDs())
		at := w.conn.now
		w.scanner.opts.Budget.charge(w.conn.serverTime, w.conn.networkTime, time.Now())
		if err != nil {
			return err
		}
		more, err := w.changesUpToNow(ctx)
		changed = append(changed, more...)
		switch {
		case err != nil:
			return err
		case len(changed) == 0:
			w.suspects.Idle(at, list)
			return nil
		case len(more) == 0 || n == 5: // they are listed again because a lock changes meanwhile, but not for ever
			return w.attribute(ctx, changed, at, list)
		}
		// The last change was before or after this list. The next list is after it.
	}
}

// due reports whether the clients are to be listed although the locks do not change.
func (w *holderWatch) due(now time.Time) bool {
	since, until := now.Sub(w.listedAt), w.expected.Sub(now)
	if until >= 0 && until < justBefore && since > justBefore {
		return true
	}
	return since >= w.pause() && w.scanner.opts.Budget.allow(now)
}

// pause returns the time between two lists while the locks do not change.
func (w *holderWatch) pause() time.Duration {
	all := w.conn.listsAll || w.suspects.IDs() == nil
	switch expected := time.Until(w.expected).Abs() < expectWithin; {
	case all && expected:
		return pollAllExpected
	case all:
		return pollAll
	case expected:
		return pollSuspectsExpected
	default:
		return pollSuspects
	}
}

// changesUpToNow returns the changes that the server made before this call and that were
// not taken yet: it waits for a mark.
func (w *holderWatch) changesUpToNow(ctx context.Context) (changed []string, err error) {
	w.marks++
	if err := w.changes.ps.Ping(ctx, strconv.Itoa(w.marks)); err != nil {
		return nil, err
	}
	for w.received < w.marks {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.changes.ended:
			return nil, w.trackingLost()
		case <-w.changes.wake:
			changed = append(changed, w.takeChanges()...)
		}
	}
	return changed, nil
}

// attribute finds out whether the holder has made the changes of some locks, and adds the
// list of the clients to the evidence.
func (w *holderWatch) attribute(ctx context.Context, changed []string, at time.Time, list []keyspace.Client) error {
	made := false
	slices.Sort(changed)
	for _, key := range slices.Compact(changed) {
		l, err := w.scanner.ReadLock(ctx, key)
		if err != nil {
			return fmt.Errorf("read %q: %w", key, err)
		}
		if l == nil {
			l = &keyspace.Lock{Key: key}
		}
		h, ours := w.locks[key]
		if !ours {
			continue
		}
		before := *h
		if h.update(*l) {
			made = true
			w.expected = time.Now().Add(h.holder.Expires.Sub(before.holder.Expires)) // as a renewal sets the same TTL each time
		}
		if key == w.key && len(before.lock.Holders) <= 1 {
			w.followOwner()
		}
	}
	if made {
		w.suspects.Changed(at, list)
	} else {
		w.suspects.Skip(at, list)
	}
	return nil
}

// update takes a new state of the lock, and reports whether its holder has made the change.
func (h *held) update(l keyspace.Lock) bool {
	before, was := h.holder, h.lock
	h.lock = l
	i := slices.IndexFunc(l.Holders, before.SameOwner)
	if i < 0 {
		return false
	}
	h.holder = l.Holders[i]
	return h.holder.ID != before.ID || h.holder.Depth != before.Depth || len(was.Holders) == 0 ||
		h.holder.Expires.Sub(before.Expires).Abs() > keyspace.DeadlineJitter
}

// followOwner starts again if another owner has the lock now.
func (w *holderWatch) followOwner() {
	this := w.locks[w.key]
	if len(this.lock.Holders) != 1 || this.lock.Holders[0].SameOwner(this.holder) {
		return
	}
	this.holder = this.lock.Holders[0]
	w.locks = map[string]*held{w.key: this} // the others belong to the previous owner
	w.suspects.Restart()                    // an acquire may take another command than a renewal
}

// seen returns what was seen so far.
func (w *holderWatch) seen() Investigation {
	return Investigation{w.suspects.Best(), w.locks[w.key].lock}
}
