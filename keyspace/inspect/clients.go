package inspect

import (
	"context"
	"errors"
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
	listedAt      time.Time           // of the previous list, on the server's clock
	relevant      bool                // some holders have a label that can be a client name
	clientCount   int64               // number of clients, if they are too many to list
	seenConnected map[holderKey]int64 // holders whose connection was seen, with its ID; 0 = several have had its name
}

// holderKey identifies a holder of a lock.
type holderKey struct{ key, holder string }

// connections are the connections with a name.
type connections map[string][]keyspace.Client

func connectionsOf(clients []keyspace.Client) connections {
	all := make(connections)
	for _, c := range clients {
		if c.Name != "" {
			all[c.Name] = append(all[c.Name], c)
		}
	}
	return all
}

// hostOf returns the host of connections; "" if they are on several.
func hostOf(list []keyspace.Client) string {
	host := list[0].Host()
	if slices.ContainsFunc(list, func(c keyspace.Client) bool { return c.Host() != host }) {
		return ""
	}
	return host
}

// annotate sets the addresses of the holders of a lock, and since when they are
// disconnected, and reports whether that changed. It adds the holders whose connection was seen to seen.
// A name that several connections have, also one after the other, is that of none of them.
func (t *clientTracker) annotate(l keyspace.Lock, connected connections, seen map[holderKey]int64, now time.Time) (keyspace.Lock, bool) {
	changed := false
	for i, h := range l.Holders {
		id, addr := holderKey{l.Key, h.ID}, h.Addr // the last one, to look there for the reason
		var list []keyspace.Client
		if canBeClientName(h) {
			list = connected[h.Label]
		}
		its, known := t.seenConnected[id]
		switch one := len(list) == 1; {
		case one && (!known || its == list[0].ID):
			its, addr = list[0].ID, list[0].Addr
		case len(list) > 0:
			if its, addr = 0, hostOf(list); known && h.Addr != addr && !strings.HasPrefix(h.Addr, addr+":") {
				addr = ""
			}
		}
		left, last := h.DisconnectedAt, h.ConnectedAt
		switch {
		case len(list) > 0 || !known:
			left, last = time.Time{}, time.Time{}
		case left.IsZero() && its != 0:
			left, last = now, t.listedAt
		case left.IsZero():
			left = now
		}
		if len(list) > 0 || known {
			seen[id] = its
		}
		if left.Equal(h.DisconnectedAt) && addr == h.Addr {
			continue
		}
		if !changed {
			l.Holders, changed = slices.Clone(l.Holders), true
		}
		l.Holders[i].DisconnectedAt, l.Holders[i].ConnectedAt, l.Holders[i].Addr = left, last, addr
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
		return []string{"disconnected holders are not detected: CLIENT LIST is not permitted, or the server does not have it"}
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
	list, err := w.listClients(ctx)
	if err != nil || list == nil {
		return err
	}
	connected := connectionsOf(list)
	seen := make(map[holderKey]int64)
	for key, l := range w.locks.known {
		if marked, changed := t.annotate(*l.lock, connected, seen, w.reader.conn.now); changed {
			w.locks.replace(key, marked)
		}
	}
	t.seenConnected, t.listedAt = seen, w.reader.conn.now
	return nil
}

// listClients returns the connected clients; nil if that is not permitted or they are too
// many.
func (w *Watcher) listClients(ctx context.Context) ([]keyspace.Client, error) {
	n, err := w.reader.conn.countClients(ctx)
	if err != nil {
		return nil, err
	}
	w.clients.clientCount = n
	if n == 0 || n > maxClientList {
		return nil, nil
	}
	list, err := w.reader.conn.clients(ctx, nil)
	if _, refused := errors.AsType[redis.Error](err); refused || errors.Is(err, ErrMayNotList) || errors.Is(err, ErrNoClientList) {
		return nil, nil
	}
	return list, err
}
