package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// clientTracker tracks whether holders are still connected. It knows only holders whose
// label was the name of a connection during the hold.
type clientTracker struct {
	refreshedAt   time.Time
	relevant      bool               // some holders have a label that can be a client name
	clientCount   int64              // number of clients, if they are too many to list
	seenConnected map[holderKey]bool // holders whose connection was seen
}

// holderKey identifies a holder of a lock.
type holderKey struct{ key, holder string }

// clientNames returns the names in a reply of CLIENT LIST.
func clientNames(list string) map[string]bool {
	names := make(map[string]bool)
	for line := range strings.Lines(list) {
		for field := range strings.FieldsSeq(line) {
			if name, ok := strings.CutPrefix(field, "name="); ok && name != "" {
				names[name] = true
				break
			}
		}
	}
	return names
}

// annotate sets since when the holders of a lock are disconnected, and reports whether
// that changed. It adds the holders whose connection was seen to seen.
func (t *clientTracker) annotate(l keyspace.Lock, connected map[string]bool, seen map[holderKey]bool, now time.Time) (keyspace.Lock, bool) {
	changed := false
	for i, h := range l.Holders {
		id := holderKey{l.Key, h.ID}
		here := canBeClientName(h) && connected[h.Label]
		if here || t.seenConnected[id] {
			seen[id] = true
		}
		left := h.DisconnectedAt
		switch {
		case here || !seen[id]:
			left = time.Time{}
		case left.IsZero():
			left = now
		}
		if left.Equal(h.DisconnectedAt) {
			continue
		}
		if !changed {
			l.Holders, changed = slices.Clone(l.Holders), true
		}
		l.Holders[i].DisconnectedAt = left
	}
	return l, changed
}

// hasNamedHolders reports whether a holder has a label that can be a client name.
func (s lockSet) hasNamedHolders() bool {
	for _, l := range s {
		if slices.ContainsFunc(l.lock.Holders, canBeClientName) {
			return true
		}
	}
	return false
}

// canBeClientName reports whether the label of a holder can be a client name.
func canBeClientName(h keyspace.Holder) bool {
	return h.Label != "" && !strings.ContainsAny(h.Label, " \n")
}

// limitations says why disconnected holders cannot be detected.
func (t *clientTracker) limitations(refused bool) []string {
	switch {
	case !t.relevant:
		return nil
	case refused:
		return []string{"disconnected holders are not detected: this user may not run CLIENT LIST"}
	case t.clientCount > maxClientList:
		return []string{fmt.Sprintf("disconnected holders are not detected: %d clients are too many to list", t.clientCount)}
	}
	return nil
}

// Bounds of CLIENT LIST.
const (
	clientListEvery = 2 * time.Second
	maxClientList   = 1000 // a longer list would block other clients
)

// cmdClient lists clients. Few users may send it.
const cmdClient = "client"

// refreshClients polls CLIENT LIST if a holder has a suitable label, and marks the
// holders that have disconnected. Without the permission it does nothing.
func (w *Watcher) refreshClients(ctx context.Context) error {
	t := &w.clients
	now := time.Now()
	if now.Sub(t.refreshedAt) < clientListEvery || !w.scanner.opts.Budget.allow(now) {
		return nil
	}
	t.refreshedAt, t.relevant = now, w.locks.known.hasNamedHolders()
	if !t.relevant || w.server.info.Role != "master" || w.reader.conn.denied.has(cmdClient) {
		return nil
	}
	connected, err := w.listClients(ctx)
	if err != nil || connected == nil {
		return err
	}
	seen := make(map[holderKey]bool)
	for key, l := range w.locks.known {
		if marked, changed := t.annotate(l.lock, connected, seen, w.reader.conn.now); changed {
			l.lock = marked
			w.locks.known[key], w.locks.sorted = l, nil
		}
	}
	t.seenConnected = seen
	return nil
}

// listClients returns the names of the connected clients; nil if that is not permitted
// or they are too many.
func (w *Watcher) listClients(ctx context.Context) (map[string]bool, error) {
	var info, list *redis.StringCmd
	err := w.reader.conn.pipelined(ctx, "count clients", func(p redis.Pipeliner) { info = p.Info(ctx, "clients") })
	if err != nil {
		return nil, err
	}
	_, after, _ := strings.Cut(info.Val(), "connected_clients:")
	count, _, _ := strings.Cut(after, "\r")
	w.clients.clientCount = number(count)
	if n := w.clients.clientCount; n == 0 || n > maxClientList {
		return nil, nil
	}
	err = w.reader.conn.pipelined(ctx, "list clients", func(p redis.Pipeliner) { list = p.ClientList(ctx) })
	if err != nil || list.Err() != nil {
		return nil, err
	}
	return clientNames(list.Val()), nil
}
