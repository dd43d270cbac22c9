package tui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// holderClients is what is known of the clients that hold locks.
type holderClients struct {
	finder  Finder // nil if the clients cannot be listed
	asked   time.Time
	asking  bool
	listed  time.Time                // local time of the last request for a list; or zero
	servers map[string]serverClients // by server
	lock    keyspace.ID              // of the open page
	watch   holderWatch
}

// holderWatch is a search for the client of a holder by coincidence.
type holderWatch struct {
	holder keyspace.Holder
	began  time.Time          // zero = none
	stop   context.CancelFunc // nil = it has ended
	found  keyspace.Suspicion
	err    error
}

// watchFor is the time of a search by coincidence.
const watchFor = 30 * time.Second

// leave ends what is in progress for a lock.
func (c *holderClients) leave() {
	if c.watch.stop != nil {
		c.watch.stop()
	}
	c.lock, c.watch = keyspace.ID{}, holderWatch{}
}

// findsClients reports whether the clients of the server can be listed, and the view is of now.
func (s *state) findsClients() bool {
	return s.clients.finder != nil && s.playback == nil && (s.paused == nil || !s.paused.rewound)
}

// onWatched stores the result of a search for the client of a holder.
func (c *holderClients) onWatched(id keyspace.ID, h keyspace.Holder, found keyspace.Suspicion, err error) {
	if id.OnAnyNode() == c.lock && h.ID == c.watch.holder.ID && c.watch.stop != nil {
		c.watch.stop()
		c.watch.stop, c.watch.found, c.watch.err = nil, found, err
	}
}

// findClient searches for the client that holds the lock of the page by coincidence. If the lock
// has several holders, the user chooses one.
func (a *app) findClient() tea.Cmd {
	l, ok := a.selected()
	switch {
	case a.playback != nil:
		a.reject("a recording has no connections")
	case a.clients.finder == nil:
		a.reject("the clients of this server cannot be listed")
	case !a.findsClients():
		a.reject(a.keymap.named("this is the past; {live} goes back to now"))
	case a.clients.watch.stop != nil:
		a.reject("the lock is being watched already")
	case !ok || len(l.Holders) == 0 || a.page().(*lockPage).gone:
		a.reject("nobody holds it")
	case len(l.Holders) == 1:
		return a.watchHolder(l, l.Holders[0])
	default:
		a.dialog = a.perHolder("find the client of which holder of "+a.privacy.key(l.Key), l, func(l keyspace.Lock) (dialog, tea.Cmd) {
			return nil, a.watchHolder(l, l.Holders[0])
		})
	}
	return nil
}

// watchHolder starts a search for the client of a holder.
func (a *app) watchHolder(l keyspace.Lock, h keyspace.Holder) tea.Cmd {
	var others []*keyspace.Lock
	for _, other := range a.current().locks {
		if slices.ContainsFunc(other.Holders, h.SameOwner) {
			others = append(others, other)
		}
	}
	if now, ok := a.current().lock(l.ID()); ok {
		l = now // with all its holders
	}
	ctx, stop := context.WithTimeout(a.ctx, watchFor)
	a.clients.lock = l.ID().OnAnyNode()
	a.clients.watch = holderWatch{holder: h, began: a.now, stop: stop}
	return watchHolder(ctx, a.clients.finder, l, h, others)
}

// connection describes the client of a holder, as far as it is known.
func (v lockView) connection(h *keyspace.Holder) string {
	s := v.state
	c, of := &s.clients, s.clients.servers[v.HeldOn(*h)]
	process := ""
	if p, ok := h.Process(); ok {
		p.Host = s.privacy.addr(p.Host)
		process = "process " + p.String()
	}
	named := ""
	if h.Addr != "" {
		named = "connected from " + s.privacy.addr(h.Addr)
	}
	if !h.DisconnectedAt.IsZero() {
		named = "its connection ended " + humanize.Duration(s.clock().Sub(h.DisconnectedAt)) + " ago"
	}
	closed := v.closedOf(h)
	named = cmp.Or(closed, named)
	if !s.findsClients() {
		return s.sentence(process, named)
	}
	found, hint := of.matched[h.ID].clients, of.matched[h.ID].hint
	switch watched := !c.watch.began.IsZero() && c.watch.holder.ID == h.ID; {
	case watched && c.watch.stop != nil:
		return s.sentence(process, "looking for its client: "+humanize.Duration(s.now.Sub(c.watch.began))+" of "+humanize.Setting(watchFor))
	case watched && c.watch.err != nil:
		return s.sentence(process, named, "not found: "+shortError(c.watch.err))
	case watched && c.watch.found.Named && closed != "":
		return s.sentence(process, named, "it was probably the holder")
	case watched && c.watch.found.Named:
		return s.sentence(process, "probably "+s.clientText(h, c.watch.found.Client), widget.Plain(c.watch.found.Text()))
	case watched && len(c.watch.found.Renewers) > 0:
		return s.sentence(process, named, widget.Plain(c.watch.found.Text()))
	case watched:
		return s.sentence(process, named, "not found in "+humanize.Setting(watchFor)+": "+widget.Plain(c.watch.found.Text()))
	case of.asked.IsZero():
		return s.sentence(process, named)
	case of.err != nil:
		return s.sentence(process, named, "connection not shown: "+shortError(of.err))
	case len(found) > 0:
		text, more := s.clientText(h, found[0])+", "+activity(found[0]), ""
		if hint {
			text = "perhaps " + text + ", whose name is in the value"
		}
		if len(found) > 1 {
			more = humanize.Plural(len(found)-1, "more such connection")
		}
		return s.sentence(process, text, more)
	case named != "":
		return s.sentence(process, named)
	default:
		return s.sentence(process, "Redis shows no connection of this holder: its value names none")
	}
}

// closedOf says when the connection of a holder closed, as far as it was seen; "" = it was not.
func (v lockView) closedOf(h *keyspace.Holder) string {
	s := v.state
	of := s.clients.servers[v.HeldOn(*h)]
	was, ok := of.matched[h.ID].closed, of.matched[h.ID].closed.ID != 0
	if w := s.clients.watch; w.found.Named && w.holder.ID == h.ID {
		was, ok = of.closings.Of(h, w.found.Client.ID)
	}
	if ok {
		return keyspace.ClosedBetween(s.clientText(h, was.Client), was.Last, was.By)
	}
	seen := *h
	seen.Addr = s.privacy.addr(h.Addr)
	return seen.Closed()
}

// clientText describes a client of a holder.
func (s *state) clientText(h *keyspace.Holder, c keyspace.Client) string {
	facts := []string{s.privacy.addr(c.Addr)}
	if c.Name != "" && c.Name != h.Label && c.Name != h.ID {
		facts = append(facts, "named "+s.privacy.owner(c.Name))
	}
	if c.Library != "" {
		facts = append(facts, widget.Plain(c.Library))
	}
	return strings.Join(facts, ", ")
}

// activity says for how long a client is connected, and what it did last.
func activity(c keyspace.Client) string {
	text := "connected for " + humanize.Duration(c.Age)
	if c.Command != "" {
		text += fmt.Sprintf(", idle %s after %s", humanize.Duration(c.Idle), widget.Plain(c.Command))
	}
	return text
}
