package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// bySeverity is the order that no column stands for: what does most damage first.
const bySeverity = -1

// lockView is one lock on its way to the screen.
type lockView struct {
	*keyspace.Lock
	now   time.Time // the server's clock
	state *state
}

// column is one column of the table of locks.
type column struct {
	widget.Column
	name string // in sentences
	wide bool   // only on request
	cell func(v lockView, w int) widget.Cell
	less func(a, b lockView) int // nil: rows cannot be sorted by it
}

// columns are the columns of the table, from left to right.
func (p *locksPage) columns() []column {
	all := lockColumns()
	if p.wide { // what was asked for goes last where there is no room
		for i := range all {
			if c := &all[i]; c.wide {
				c.Priority -= 6
			} else if c.Priority > 2 {
				c.Priority += 10
			}
		}
		return all
	}
	kept := all[:0]
	for _, c := range all {
		if !c.wide {
			kept = append(kept, c)
		}
	}
	return kept
}

func lockColumns() []column {
	return []column{
		{widget.Column{Title: "LOCK", Min: 16, Max: 44}, "key", false, keyCell, byKey},
		{widget.Column{Title: "KIND", Min: 9, Priority: 5}, "kind", false, kindCell, byKind},
		{widget.Column{Title: "FORMAT", Min: 11, Max: 16, Priority: 8}, "format", false, formatCell, byFormat},
		{widget.Column{Title: "OWNER", Min: 12, Max: 26, Priority: 1}, "owner", false, ownerCell, byOwner},
		{widget.Column{Title: "×", Min: 2, Priority: 6, Right: true}, "count", false, countCell, byCount},
		{widget.Column{Title: "WAIT", Min: 5, Priority: 2, Right: true}, "waiters", false, waitCell, byWaiters},
		{widget.Column{Title: "HELD", Min: 8, Priority: 3, Right: true}, "hold time", false, heldCell, byHeld},
		{widget.Column{Title: "TTL", Min: 7, Right: true}, "time left", false, ttlCell, byTTL},
		{widget.Column{Title: "", Min: 8, Max: 18, Priority: 7}, "", false, barCell, nil},
		{widget.Column{Title: "STATE", Min: 9}, "state", false, stateCell, byState},
		{widget.Column{Title: "FENCE", Min: 6, Priority: 9, Right: true}, "fence", true, fenceCell, byFence},
		{widget.Column{Title: "RENEWED", Min: 8, Priority: 9, Right: true}, "renewals", true, renewedCell, byRenewals},
		{widget.Column{Title: "DB", Min: 3, Priority: 10, Right: true}, "database", true, dbCell, byDB},
		{widget.Column{Title: "NODE", Min: 15, Max: 24, Priority: 10}, "node", true, nodeCell, byNode},
	}
}

func keyCell(v lockView, _ int) widget.Cell {
	return widget.Cell{Style: v.state.theme.strong, Text: v.state.redactKey(v.Key)}
}

func kindCell(v lockView, _ int) widget.Cell {
	return widget.Cell{Style: v.state.theme.text, Text: string(v.Kind)}
}

func formatCell(v lockView, _ int) widget.Cell {
	return widget.Cell{Style: v.state.theme.dim, Text: widget.Plain(v.Format)}
}

func ownerCell(v lockView, _ int) widget.Cell {
	if prefix := v.state.scenario.Keys.Prefix; v.state.load != nil && prefix != "" && strings.HasPrefix(v.Key, prefix) {
		return widget.Cell{Style: v.state.theme.chart, Text: "load " + v.owner()} // our own client
	}
	return widget.Cell{Style: v.state.theme.text, Text: v.owner()}
}

// owner names the holders in few words.
func (v lockView) owner() string {
	switch n := len(v.Holders); {
	case n == 0:
		return v.state.glyphs.None
	case n == 1:
		return v.state.redactOwner(v.Holders[0].Name())
	case v.Holders[0].Mode == keyspace.Read:
		return fmt.Sprintf("R%s%d %s", v.state.glyphs.Times, n, v.state.redactOwner(v.Holders[0].Name()))
	default:
		return fmt.Sprintf("%s +%d", v.state.redactOwner(v.Holders[0].Name()), n-1)
	}
}

func countCell(v lockView, _ int) widget.Cell {
	n := v.Count()
	st := v.state.theme.dim
	if n > 1 {
		st = v.state.theme.strong
	}
	return widget.Cell{Style: st, Text: strconv.Itoa(n)}
}

func waitCell(v lockView, _ int) widget.Cell {
	n := v.WaiterCount()
	switch {
	case n == 0 && v.blocked() > 0:
		return widget.Cell{Style: v.state.theme.warn, Text: "?"}
	case n == 0 && v.blind():
		return widget.Cell{Style: v.state.theme.dim, Text: "?"}
	case n == 0:
		return widget.Cell{Style: v.state.theme.dim, Text: "0"}
	}
	return widget.Cell{Style: v.state.theme.warn, Text: humanize.Count(n)}
}

func heldCell(v lockView, _ int) widget.Cell {
	age := v.Age(v.now)
	switch least := v.heldAtLeast(); {
	case age == 0 && least > 0:
		return widget.Cell{Style: v.state.theme.text, Text: v.state.glyphs.AtLeast + humanize.Duration(least)}
	case age == 0:
		return widget.Cell{Style: v.state.theme.dim, Text: v.state.glyphs.None}
	}
	return widget.Cell{Style: v.state.theme.text, Text: humanize.Duration(age)}
}

// heldAtLeast is how long the lock has been held since the screen first saw that,
// for locks that do not tell when the hold began; 0 for less than a second.
func (v lockView) heldAtLeast() time.Duration {
	first := v.state.leases[v.ID()].first
	if first.IsZero() || len(v.Holders) == 0 || v.now.Sub(first) < time.Second {
		return 0
	}
	return v.now.Sub(first)
}

// held is how long the lock has been held, as far as known.
func (v lockView) held() time.Duration { return cmp.Or(v.Age(v.now), v.heldAtLeast()) }

// format is what is known of how the lock is stored; nil if nothing is.
func (v lockView) format() *keyspace.Format {
	i := slices.IndexFunc(v.state.formats, func(f keyspace.Format) bool { return f.Name == v.Format })
	if i < 0 {
		return nil
	}
	return &v.state.formats[i]
}

// blind reports whether the lock may have waiters that it does not show.
func (v lockView) blind() bool {
	f := v.format()
	return f != nil && !f.ShowsWaiters
}

// blocked is the number of clients that block on the lock's server, where those
// that wait for such a lock do.
func (v lockView) blocked() int64 {
	if f := v.format(); f == nil || !f.BlockingWait || len(v.Holders) == 0 {
		return 0
	}
	snap := &v.state.current().snap
	for i := range snap.Nodes {
		if snap.Nodes[i].Addr == v.Node {
			return snap.Nodes[i].Blocked
		}
	}
	return snap.Server.Blocked
}

func ttlCell(v lockView, _ int) widget.Cell {
	t := v.state.theme
	rest, ok := v.TTL(v.now)
	switch {
	case len(v.Holders) == 0 && !ok:
		return widget.Cell{Style: t.dim, Text: v.state.glyphs.None}
	case !ok:
		return widget.Cell{Style: t.bad, Text: "never"}
	default:
		return widget.Cell{Style: v.urgency(t.text), Text: humanize.Left(rest)}
	}
}

func barCell(v lockView, w int) widget.Cell {
	return widget.Cell{Style: v.urgency(v.state.theme.calm), Text: v.state.glyphs.Bar(v.remaining(), w)}
}

// remaining is the part of the lease that is left, from 0 to 1.
func (v lockView) remaining() float64 {
	rest, ok := v.TTL(v.now)
	whole := v.state.leases[v.ID()].length
	if !ok || whole <= 0 {
		return 0
	}
	return max(0, min(1, float64(rest)/float64(whole)))
}

// urgency is the style of a time that runs out: calm while there is enough.
func (v lockView) urgency(calm widget.Style) widget.Style {
	switch rest := v.remaining(); {
	case rest < 0.15:
		return v.state.theme.bad
	case rest < 0.4:
		return v.state.theme.warn
	default:
		return calm
	}
}

func stateCell(v lockView, _ int) widget.Cell {
	st := v.State(v.now)
	glyph, style := v.state.ofState(st)
	return widget.Cell{Style: style, Text: glyph + " " + string(st)}
}

func fenceCell(v lockView, _ int) widget.Cell {
	if v.Fence == 0 {
		return widget.Cell{Style: v.state.theme.dim, Text: v.state.glyphs.None}
	}
	return widget.Cell{Style: v.state.theme.text, Text: strconv.FormatInt(v.Fence, 10)}
}

func renewedCell(v lockView, _ int) widget.Cell {
	return widget.Cell{Style: v.state.theme.text, Text: humanize.Count(v.Renewals) + v.state.glyphs.Times}
}

func dbCell(v lockView, _ int) widget.Cell {
	return widget.Cell{Style: v.state.theme.text, Text: strconv.Itoa(v.DB)}
}

func nodeCell(v lockView, _ int) widget.Cell {
	if n := len(v.Votes); n > 0 {
		return widget.Cell{Style: v.state.theme.dim, Text: humanize.Plural(n, "node")}
	}
	return widget.Cell{Style: v.state.theme.dim, Text: v.state.redactAddr(v.Node)}
}

func byKey(a, b lockView) int    { return strings.Compare(a.Key, b.Key) }
func byKind(a, b lockView) int   { return cmp.Compare(a.Kind, b.Kind) }
func byFormat(a, b lockView) int { return strings.Compare(a.Format, b.Format) }
func byOwner(a, b lockView) int  { return strings.Compare(a.firstHolder(), b.firstHolder()) }
func byState(a, b lockView) int  { return cmp.Compare(a.State(a.now), b.State(b.now)) }
func byNode(a, b lockView) int   { return strings.Compare(a.Node, b.Node) }
func byDB(a, b lockView) int     { return cmp.Compare(a.DB, b.DB) }

// Of figures, the large ones matter and come first.

func byCount(a, b lockView) int    { return cmp.Compare(b.Count(), a.Count()) }
func byWaiters(a, b lockView) int  { return cmp.Compare(b.WaiterCount(), a.WaiterCount()) }
func byHeld(a, b lockView) int     { return cmp.Compare(b.held(), a.held()) }
func byFence(a, b lockView) int    { return cmp.Compare(b.Fence, a.Fence) }
func byRenewals(a, b lockView) int { return cmp.Compare(b.Renewals, a.Renewals) }

// byTTL puts first what ends first, and last what never does.
func byTTL(a, b lockView) int {
	if never := a.Expires.IsZero(); never != b.Expires.IsZero() {
		if never {
			return 1
		}
		return -1
	}
	return a.Expires.Compare(b.Expires)
}

func (v lockView) firstHolder() string {
	if len(v.Holders) == 0 {
		return ""
	}
	return v.Holders[0].Name()
}
