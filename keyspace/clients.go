package keyspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// clientTracker tells whether holders are still connected: those whose label was the
// name of a connection while they held. Of all others nobody can tell.
type clientTracker struct {
	refreshedAt   time.Time
	relevant      bool               // there are holders whom it could concern
	clientCount   int64              // of clients, where they are too many to be listed
	seenConnected map[holderKey]bool // whose connection was seen
}

// holderKey is a holder of a lock.
type holderKey struct{ key, holder string }

// clientNames reads the names from a list of clients.
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

// annotate returns the lock with what the names of those present tell of its holders,
// and whether that is news. It books in came whose connection was seen.
func (t *clientTracker) annotate(l Lock, connected map[string]bool, seen map[holderKey]bool, now time.Time) (Lock, bool) {
	changed := false
	for i, h := range l.Holders {
		id := holderKey{l.Key, h.ID}
		here := canBeClientName(h) && connected[h.Label]
		if here || t.seenConnected[id] {
			seen[id] = true
		}
		left := h.Left
		switch {
		case here || !seen[id]:
			left = time.Time{}
		case left.IsZero():
			left = now
		}
		if left.Equal(h.Left) {
			continue
		}
		if !changed {
			l.Holders, changed = slices.Clone(l.Holders), true
		}
		l.Holders[i].Left = left
	}
	return l, changed
}

// hasNamedHolders reports whether there are holders that could be known by name.
func (s lockSet) hasNamedHolders() bool {
	for _, l := range s {
		if slices.ContainsFunc(l.lock.Holders, canBeClientName) {
			return true
		}
	}
	return false
}

// canBeClientName reports whether the label of a holder can be the name of a connection.
func canBeClientName(h Holder) bool { return h.Label != "" && !strings.ContainsAny(h.Label, " \n") }

// limitations says why nobody can tell whether holders are connected.
func (t *clientTracker) limitations(refused bool) []string {
	switch {
	case !t.relevant:
		return nil
	case refused:
		return []string{"whether holders are still connected: this user may not run CLIENT LIST"}
	case t.clientCount > maxClientList:
		return []string{fmt.Sprintf("whether holders are still connected: %d clients are too many to list", t.clientCount)}
	}
	return nil
}

// How often, and of how many clients, the server is asked who is connected.
const (
	clientListEvery = 2 * time.Second
	maxClientList   = 1000 // the list of more would hold up everybody else
)

// cmdClient is the command that lists clients. Few may send it.
const cmdClient = "client"

// refreshClients asks who is connected, if there are holders whom that could concern,
// and notes since when those are not who have been. Who may not ask does without.
func (w *Watcher) refreshClients(ctx context.Context) error {
	t := &w.clients
	now := time.Now()
	if now.Sub(t.refreshedAt) < clientListEvery || !w.scanner.opts.Budget.allow(now) {
		return nil
	}
	t.refreshedAt, t.relevant = now, w.known.hasNamedHolders()
	if !t.relevant || w.server.Role != "master" || w.reader.denied.has(cmdClient) {
		return nil
	}
	connected, err := w.listClients(ctx)
	if err != nil || connected == nil {
		return err
	}
	seen := make(map[holderKey]bool)
	for key, l := range w.known {
		if marked, changed := t.annotate(l.lock, connected, seen, w.reader.now); changed {
			l.lock = marked
			w.known[key], w.sorted = l, nil
		}
	}
	t.seenConnected = seen
	return nil
}

// listClients returns the names of those who are connected; nil if that may not be
// asked, or they are too many.
func (w *Watcher) listClients(ctx context.Context) (map[string]bool, error) {
	var info, list *redis.StringCmd
	err := w.reader.pipelined(ctx, "count clients", func(p redis.Pipeliner) { info = p.Info(ctx, "clients") })
	if err != nil {
		return nil, err
	}
	_, after, _ := strings.Cut(info.Val(), "connected_clients:")
	count, _, _ := strings.Cut(after, "\r")
	w.clients.clientCount = number(count)
	if n := w.clients.clientCount; n == 0 || n > maxClientList {
		return nil, nil
	}
	err = w.reader.pipelined(ctx, "list clients", func(p redis.Pipeliner) { list = p.ClientList(ctx) })
	if err != nil || list.Err() != nil {
		return nil, err
	}
	return clientNames(list.Val()), nil
}
