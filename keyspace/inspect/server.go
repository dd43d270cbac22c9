package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/keyspace"
)

// describeServer fills in the values of a section of INFO.
func describeServer(s *keyspace.Server, info string) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch name {
		case "redis_version": // the first line; other products add their own version
			s.Product, s.Version = "redis", value
		case "server_name":
			s.Product = value
		case s.Product + "_version":
			s.Version = value
		case "redis_mode", "server_mode":
			s.Mode = value
		case "role":
			s.Role = value
		case "master_host":
			s.Master = value
		case "master_port":
			s.Master = net.JoinHostPort(s.Master, value)
		case "master_link_status":
			s.MasterDown = value == "down"
		case "run_id":
			s.RunID = value
		case "tcp_port":
			s.Port = value
		case "uptime_in_seconds":
			s.Uptime = time.Duration(number(value)) * time.Second
		case "maxmemory":
			s.MaxMemory = number(value)
		case "maxmemory_policy":
			s.Policy = value
		case "evicted_keys":
			s.Evicted = number(value)
		case "blocked_clients":
			s.Blocked = number(value)
		case "connected_slaves":
			s.Replicas = int(number(value))
		case "min_slaves_good_slaves":
			s.MinReplicas = true
		}
	}
}

// InfoValue returns a value in a reply of INFO; false if it is not there.
func InfoValue(info, name string) (string, bool) {
	_, after, known := strings.Cut("\n"+info, "\n"+name+":")
	value, _, _ := strings.Cut(after, "\r")
	return value, known
}

// number parses a number; anything else counts as 0.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// serverState is what a server has reported about itself.
type serverState struct {
	info   keyspace.Server
	readAt time.Time        // when info was read
	change *keyspace.Notice // change since the last cycle

	databases int // number of databases that have keys; 0 = unknown

	demotedUntil time.Time // until then a loss of keys may be the end of its time as a master
}

// modeState is how changes are detected.
type modeState struct {
	current  keyspace.WatchMode
	at       time.Time // last time in this mode
	degraded bool      // the mode is worse than Push, after it was Push
}

// onServerInfo compares what the server reports about itself with the last report.
func (w *Watcher) onServerInfo(s keyspace.Server, now time.Time) {
	const rounding = 2 * time.Second // clock and uptime are in whole seconds
	was, passed := w.server.info, now.Sub(w.server.readAt)
	w.countEvictions(s)
	w.server.info, w.server.readAt = s, now
	switch {
	case was.RunID != s.RunID || s.Role != "slave":
		w.server.demotedUntil = time.Time{}
	case was.Role == "master", s.MasterDown && now.Before(w.server.demotedUntil):
		w.server.demotedUntil = now.Add(10 * time.Second) // until then the loss of its keys may still have to be read
	}
	switch {
	case was.RunID == "" || s.RunID == "":
	case was.RunID == s.RunID && was.Role == "master" && s.Role == "slave":
		w.server.change = &keyspace.Notice{Kind: keyspace.ServerFailover, Text: "the server is a replica now"}
	case was.RunID == s.RunID:
	case s.Port == was.Port && s.Uptime < passed+rounding:
		w.server.change = &keyspace.Notice{Kind: keyspace.ServerRestarted, Text: "it was restarted"}
	default:
		w.server.change = &keyspace.Notice{Kind: keyspace.ServerFailover, Text: fmt.Sprintf("another server has taken its place; its uptime is %s", humanize.Duration(s.Uptime))}
	}
}

// onError records a failed cycle. The end of ctx alone is no failure of the server, but a
// cycle that was not finished.
func (w *Watcher) onError(ctx context.Context, err error) {
	w.failures.missedEvents, w.scan.next = true, time.Time{}
	answeredAt, silent := w.scanner.answer.last()
	if hasEnded(ctx) && silent <= 500*time.Millisecond { // otherwise the server counts as lost
		return
	}
	w.scan.pass, w.scan.complete = nil, false
	w.clients.seenConnected = nil // the server may have been replaced
	if w.failures.count == 0 {
		w.failures.since = answeredAt
		w.addNotice(keyspace.ServerLost, err.Error())
	}
	pause := min(minRetry<<min(w.failures.count, 10), maxRetry)
	w.failures.count++
	w.failures.retryAt = keyspace.Later(time.Now().Add(minRetry), w.times.cycleStart.Add(pause)) // a wait for an answer is a pause
}

// onSuccess records a successful cycle.
func (w *Watcher) onSuccess() {
	switch {
	case w.failures.count > 0 && w.server.change != nil:
		w.addNotice(keyspace.ServerBack, w.server.change.Text)
		w.unreported.notices[len(w.unreported.notices)-1].Change = w.server.change.Kind
	case w.failures.count > 0:
		w.addNotice(keyspace.ServerBack, "")
	case w.server.change != nil:
		w.addNotice(w.server.change.Kind, w.server.change.Text)
	}
	w.failures.count, w.failures.missedEvents, w.server.change = 0, false, nil
	w.updateMode()
	was := w.locks.deniedBefore
	w.locks.deniedBefore = len(w.locks.denied)
	switch {
	case was == 0 && w.locks.deniedBefore > 0:
		w.addNotice(keyspace.RightsChanged, "this user may not read known locks any more; they are shown as last read")
	case was > 0 && w.locks.deniedBefore == 0:
		w.addNotice(keyspace.RightsChanged, "this user may read all known locks again")
	}
}

// updateMode reports a lasting change of the watch mode.
func (w *Watcher) updateMode() {
	now, mode := time.Now(), w.tracking.mode()
	switch {
	case mode == w.mode.current:
		w.mode.at = now
	case w.mode.current == "" || now.Sub(w.mode.at) > modeGrace:
		if w.mode.current == keyspace.Push || w.mode.degraded {
			w.addNotice(keyspace.WatchModeChanged, "changes are now detected by "+string(mode))
			w.mode.degraded = mode != keyspace.Push
		}
		w.mode.current, w.mode.at = mode, now
	}
}

// addNotice adds a notice unless it repeats the last one.
func (w *Watcher) addNotice(kind keyspace.NoticeKind, text string) {
	n := keyspace.Notice{At: time.Now(), Kind: kind, Node: w.scanner.node, Text: text}
	if kind == keyspace.ServerLost || kind == keyspace.ServerBack {
		n.Since = w.failures.since
	}
	if last := len(w.unreported.notices) - 1; last >= 0 && w.unreported.notices[last].Kind == kind && w.unreported.notices[last].Text == text {
		return
	}
	w.unreported.notices = append(w.unreported.notices, n)
}

// serverNow returns the estimated time of the server.
func (w *Watcher) serverNow() time.Time { return time.Now().Add(w.times.clockOffset) }

// lateness returns how late changes were read in the last one to two seconds.
func (w *Watcher) lateness() time.Duration {
	late := max(w.times.lag.worst, w.times.lag.previous)
	if w.tracking.mode() == keyspace.Polling {
		late = max(late, pollEvery)
	}
	return late
}

// status returns how changes are detected.
func (w *Watcher) status() keyspace.WatchStatus {
	follow := keyspace.WatchStatus{Mode: w.tracking.mode(), Lag: w.lateness()}
	follow.Limitations = append(w.tracking.limitations(w.scanner.opts.Formats, follow.Lag), w.clients.limitations(w.scanner.denied.has(cmdClient))...)
	if why := w.askBlind(); why != "" && w.requests.relevant {
		follow.Limitations = append(follow.Limitations, "clients that wait without a trace on the server are not detected: "+why)
	}
	if follow.Mode == keyspace.Push && w.scan.complete {
		late := (passEvery + w.scan.passTime).Round(100 * time.Millisecond)
		follow.Limitations = append(follow.Limitations, fmt.Sprintf("holds shorter than %s may be missed under a name that begins like no earlier lock: only a scan of all keys finds it", humanize.Duration(late)))
	}
	return follow
}

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
	if !t.relevant || w.server.info.Role != "master" || w.scanner.denied.has(cmdClient) {
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
