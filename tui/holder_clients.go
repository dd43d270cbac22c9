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
	return s.config.Finder != nil && s.playback == nil && (s.paused == nil || !s.paused.rewound)
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
	case a.config.Finder == nil:
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
	return watchHolder(ctx, a.config.Finder, l, h, others)
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

// serverClients are the clients of a server as it has listed them. Only a command changes it, in a copy.
type serverClients struct {
	asked    time.Time // local time of the request for the last list
	clients  []keyspace.Client
	err      error
	closings keyspace.Closings
	matched  map[string]connection // by token, of the holders and waiters that were in sight
}

// connection is what the lists say of the connection of a holder or waiter.
type connection struct {
	clients []keyspace.Client // that its value names
	hint    bool              // they only have a name that is in its value
	closed  keyspace.Closing  // the last one that closed; zero = none
}

// Times of requests. A list of 1,000 clients costs the server 0.6 ms.
const (
	clientsEvery    = 5 * time.Second // between two lists of clients, of whichever servers
	clientsErrorFor = time.Minute     // after a list that was refused
	matchEvery      = time.Second     // between two searches in the last list
)

// inSight returns the holders and waiters that the open page may show; l is the selected lock.
func (a *app) inSight(l *keyspace.Lock) (seen []keyspace.Holder) {
	if p, ok := a.page().(*locksPage); ok {
		for _, r := range p.rows[min(p.top, len(p.rows)):min(p.top+p.height(&a.state), len(p.rows))] {
			if r.lock != nil {
				seen = append(seen, r.lock.Holders[:min(len(r.lock.Holders), 1)]...)
			}
		}
	}
	seen = append(seen, l.Holders[:min(len(l.Holders), holdersListed)]...)
	seen = append(seen, mapped(l.Waiters[:min(len(l.Waiters), waitersListed)], waiterAsHolder)...)
	return seen
}

// of returns what the lists say of the connection of a holder.
func (c *holderClients) of(l *keyspace.Lock, h *keyspace.Holder) connection {
	return c.servers[l.HeldOn(*h)].matched[h.ID]
}

// waiterAsHolder returns a holder with the names of a waiter.
func waiterAsHolder(w keyspace.Waiter) keyspace.Holder {
	label, _, _ := strings.Cut(w.ID, "~") // package lock
	return keyspace.Holder{ID: w.ID, Label: label}
}

// listClients requests the clients of the server of the selected lock, or searches its last list for
// holders that are new in sight.
func (a *app) listClients() tea.Cmd {
	c := &a.clients
	l, ok := a.selected()
	if a.place() != onLock || !ok || c.lock != l.ID().OnAnyNode() {
		c.leave()
	}
	if a.place() == onLock && ok {
		c.lock = l.ID().OnAnyNode()
	}
	if !ok || a.place()&(onLocks|onLock) == 0 || len(l.Holders) == 0 || !a.findsClients() || c.asking || a.now.Sub(c.asked) < matchEvery {
		return nil
	}
	server := l.HeldOn(l.Holders[0])
	of, seen := c.servers[server], a.inSight(&l)
	pause := clientsEvery
	if of.err != nil {
		pause = clientsErrorFor
	}
	list := a.now.Sub(c.listed) >= clientsEvery && a.now.Sub(of.asked) >= pause
	missing := func(h keyspace.Holder) bool { _, has := of.matched[h.ID]; return !has }
	if !list && (of.matched == nil || !slices.ContainsFunc(seen, missing)) {
		return nil
	}
	c.asked, c.asking = a.now, true
	if list {
		c.listed, of.asked = a.now, a.now
	}
	return listClients(a.ctx, a.config.Finder, l, list, server, of, seen, a.current().offset)
}

// onClients takes the list of a server, unless the target is another one now.
func (a *app) onClients(f Finder, server string, of serverClients) {
	if a.clients.asking = false; a.config.Finder == f {
		a.clients.servers[server] = of
	}
}

// match finds the connections of holders in the lists.
func (c *serverClients) match(holders []keyspace.Holder, offset time.Duration) {
	c.matched = map[string]connection{}
	for _, h := range holders {
		var m connection
		m.clients, m.hint = h.ClientsOf(c.clients)
		if was, ok := c.closings.Of(&h, 0); ok && was.By.Add(offset).After(h.Since) { // it had closed before this hold otherwise
			m.closed = was
		}
		c.matched[h.ID] = m
	}
}

// known returns the IDs of the connections that were found.
func (c *serverClients) known() (ids []int64) {
	for _, m := range c.matched {
		ids = append(ids, mapped(m.clients, func(c keyspace.Client) int64 { return c.ID })...)
	}
	return ids
}

// process names the connection of a holder in short, or says when it closed; "" = it is not known.
func (v lockView) process(h *keyspace.Holder) (text string, closed bool) {
	s, m := v.state, v.state.clients.of(v.Lock, h)
	switch {
	case !h.DisconnectedAt.IsZero():
		return "closed " + s.atLeast(true, humanize.Duration(s.clock().Sub(h.DisconnectedAt))) + " ago", true
	case len(m.clients) == 0 && m.closed.ID != 0:
		return "closed " + s.atLeast(true, humanize.Duration(s.now.Sub(m.closed.By))) + " ago", true
	case len(m.clients) == 0 || m.hint:
		return s.privacy.addr(h.Addr), false
	case len(m.clients) > 1:
		return fmt.Sprintf("%d connections", len(m.clients)), false
	}
	c := m.clients[0]
	if c.Name != "" && c.Name != h.Label && c.Name != h.ID {
		text = s.privacy.owner(c.Name) + " "
	}
	return text + s.privacy.addr(c.Addr), false
}

// processCell draws the connection of the first holder.
func processCell(v lockView, _ int) widget.Cell {
	if len(v.Holders) == 0 {
		return v.dimCell(v.state.screen.glyphs.None)
	}
	text, closed := v.process(&v.Holders[0])
	switch {
	case closed:
		return widget.Cell{Style: v.state.screen.theme.bad, Text: text}
	case text == "":
		return v.dimCell("?")
	}
	return v.cell(text)
}

// processCommand returns a shell command that shows the process of the first holder on its host; "" = it is not known.
func (v lockView) processCommand() string {
	clients, h := &v.state.clients, &v.Holders[0]
	c := keyspace.Client{Addr: h.Addr}
	if m := clients.of(v.Lock, h); len(m.clients) == 1 && !m.hint {
		c = m.clients[0]
	}
	if w := clients.watch; w.found.Named && w.holder.ID == h.ID {
		c = w.found.Client
	}
	p, said := h.Process()
	commands := c.ProcessCommands()
	switch {
	case len(commands) > 0 && said:
		return fmt.Sprintf(": 'on %s, process %s'; %s", c.Host(), p, commands[0])
	case len(commands) > 0:
		return fmt.Sprintf(": 'on %s'; %s", c.Host(), commands[0])
	case said && p.Sure:
		return fmt.Sprintf(": 'on %s'; ps -o pid,lstart,args -p %d", p.Host, p.PID)
	}
	return ""
}
