package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/humanize"
	"locktop/keyspace"
)

// ErrMayNotList means that this user may not run CLIENT LIST.
var ErrMayNotList = errors.New("this user may not run CLIENT LIST")

// TooManyClientsError means that a list of the clients would keep the server busy for too
// long.
type TooManyClientsError struct{ Clients, Limit int64 }

func (e TooManyClientsError) Error() string {
	return fmt.Sprintf("%s clients are too many to list: the limit is %s", humanize.Count(e.Clients), humanize.Count(e.Limit))
}

// maxClientsForOne is the limit of one list that a user asks for.
const maxClientsForOne = 2 * maxClientList

// Clients lists the clients of the server. It returns an [ErrMayNotList] without the
// permission, and a [TooManyClientsError] if the list would be too long.
func (s *Scanner) Clients(ctx context.Context) ([]keyspace.Client, error) {
	conn := s.newConn()
	n, err := conn.countClients(ctx)
	if err != nil {
		return nil, err
	}
	if n > maxClientsForOne {
		return nil, TooManyClientsError{n, maxClientsForOne}
	}
	return conn.clients(ctx, nil)
}

// countClients returns the number of clients; 0 if the server does not say it.
func (c *meteredConn) countClients(ctx context.Context) (int64, error) {
	var info *redis.StringCmd
	err := c.pipelined(ctx, "count clients", func(p redis.Pipeliner) { info = p.Info(ctx, "clients") })
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(info.Val(), "connected_clients:")
	count, _, _ := strings.Cut(after, "\r")
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
	Lock    keyspace.Lock // as last read; without holders: the lock is free
	Watched time.Duration
}

// Times between two lists while the lock does not change.
const (
	pollSuspects = 20 * time.Millisecond
	pollAll      = 200 * time.Millisecond // where the server lists all clients or none
)

// WatchHolder watches a lock until the client of one of its holders is named by
// coincidence, or until ctx ends, which is not an error. It lists the clients just after
// each change of the hold, and the suspects in between; see [keyspace.Suspects]. It calls
// progress after each change.
//
// It starts again when another owner acquires the lock. It returns an error if the server
// does not report changes, if the clients cannot be listed, if they are too many, or if
// the deadlines do not show which of several holders has made a change.
func (s *Scanner) WatchHolder(ctx context.Context, l keyspace.Lock, holder keyspace.Holder, progress func(Investigation)) (Investigation, error) {
	w, err := s.newHolderWatch(ctx, l, holder)
	if err != nil {
		return Investigation{}, err
	}
	defer w.changes.close()
	if err := w.start(ctx); err != nil {
		return w.seen(), err
	}
	tick := time.NewTicker(pollSuspects)
	defer tick.Stop()
	for !w.seen().Named {
		changed := false
		select {
		case <-ctx.Done():
			return w.seen(), nil
		case <-w.changes.ended:
			err, _ := w.changes.closedWith()
			return w.seen(), fmt.Errorf("the connection for client tracking is lost: %w", err)
		case <-w.changes.wake:
			changed = w.takeChange()
		case <-tick.C:
		}
		err := w.look(ctx, changed)
		if ctx.Err() != nil {
			return w.seen(), nil
		}
		if err != nil {
			return w.seen(), err
		}
		if changed {
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
	lock     keyspace.Lock
	typ      string // of its key
	holder   keyspace.Holder
	suspects *keyspace.Suspects
	began    time.Time
	listedAt time.Time
}

func (s *Scanner) newHolderWatch(ctx context.Context, l keyspace.Lock, holder keyspace.Holder) (*holderWatch, error) {
	if len(l.Holders) > 1 && holder.Expires.Equal(l.Expires) {
		return nil, errors.New("its holders share one deadline, so a change does not show which of them made it")
	}
	c, ok := s.rdb.(interface{ Options() *redis.Options })
	if !ok {
		return nil, errors.New("the client does not allow a separate connection")
	}
	w := &holderWatch{scanner: s, conn: s.newConn(), lock: l, holder: holder, began: time.Now()}
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
	w.changes = dialInvalidations(c.Options(), []string{l.Key}, nil)
	return w, nil
}

// start waits until the server reports changes, and makes sure that the clients can be
// listed.
func (w *holderWatch) start(ctx context.Context) error {
	select {
	case <-w.changes.ready:
	case <-ctx.Done():
		return nil
	}
	if err, ended := w.changes.closedWith(); ended {
		return fmt.Errorf("connect for client tracking: %w", err)
	}
	if err := w.changes.trackingError(); err != nil {
		return fmt.Errorf("the server does not report changes: %w", err)
	}
	_, err := w.conn.clients(ctx, []int64{1})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// takeChange reports whether the key of the lock was changed since the last call.
func (w *holderWatch) takeChange() bool {
	c := w.changes.drain()
	_, changed := c.since[w.lock.Key]
	return changed || c.flushed
}

// look lists the clients: all that matter after a change, otherwise the suspects if there
// are any and the budget allows it.
func (w *holderWatch) look(ctx context.Context, changed bool) error {
	now, ids := time.Now(), w.suspects.IDs()
	if !changed && (ids == nil || w.conn.listsAll && now.Sub(w.listedAt) < pollAll || !w.scanner.opts.Budget.allow(now)) {
		return nil
	}
	w.listedAt = now
	list, err := w.conn.clients(ctx, ids)
	w.scanner.opts.Budget.charge(w.conn.serverTime, w.conn.networkTime, time.Now())
	if err != nil {
		return err
	}
	if changed {
		return w.attribute(ctx, list)
	}
	if !w.takeChange() {
		w.suspects.Idle(w.conn.now, list)
		return nil
	}
	if list, err = w.conn.clients(ctx, ids); err != nil { // the first list may be from before the change
		return err
	}
	return w.attribute(ctx, list)
}

// attribute finds out whether the holder has made a change, and adds the list of the
// clients to the evidence.
func (w *holderWatch) attribute(ctx context.Context, list []keyspace.Client) error {
	at := w.conn.now
	l, err := w.scanner.ReadLock(ctx, w.lock.Key)
	if err != nil {
		return fmt.Errorf("read %q: %w", w.lock.Key, err)
	}
	if l == nil {
		w.lock.Holders = nil
		w.suspects.Unclear()
		return nil
	}
	before := w.holder
	i := slices.IndexFunc(l.Holders, before.SameOwner)
	found := i >= 0
	if found {
		w.holder = l.Holders[i]
	}
	switch {
	case !found && len(l.Holders) == 1 && len(w.lock.Holders) <= 1:
		w.holder, w.suspects = l.Holders[0], keyspace.NewSuspects(w.typ) // an acquire may take another command than a renewal
	case !found:
		w.suspects.Unclear()
	case w.holder.ID != before.ID, w.holder.Count != before.Count, w.holder.Expires.Sub(before.Expires).Abs() > keyspace.DeadlineJitter, len(w.lock.Holders) == 0:
		w.suspects.Changed(at, list)
	default:
		w.suspects.Unclear()
	}
	w.lock = *l
	return nil
}

// seen returns what was seen so far.
func (w *holderWatch) seen() Investigation {
	return Investigation{w.suspects.Best(), w.lock, time.Since(w.began)}
}
