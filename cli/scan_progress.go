package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"

	"locktop/humanize"
	"locktop/keyspace"
)

// scanProgress reports the progress of a scan on stderr: on a terminal one line that
// changes, otherwise one line per report. It is safe for concurrent use.
type scanProgress struct {
	notes messages
	over  bool // overwrite the line
	every time.Duration

	mu    sync.Mutex
	begun time.Time
	said  time.Time
	seen  map[keyspace.ID]keyspace.Cost // by server and database
	locks int
}

// newScanProgress returns a scanProgress if stderr is a terminal or wanted is true,
// and nil otherwise.
func (p *program) newScanProgress(wanted bool) *scanProgress {
	f, ok := p.notes.to.(*os.File)
	over := ok && term.IsTerminal(f.Fd()) && !p.notes.json
	if !over && !wanted {
		return nil
	}
	g := &scanProgress{notes: p.notes, over: over, every: time.Second, begun: time.Now(), seen: make(map[keyspace.ID]keyspace.Cost)}
	if over {
		g.every = 100 * time.Millisecond
	}
	g.said = g.begun
	return g
}

// of returns a function for the snapshots of one server and database; nil if g is
// nil.
func (g *scanProgress) of(e endpoint) func(keyspace.Snapshot) {
	if g == nil {
		return nil
	}
	return func(s keyspace.Snapshot) { g.take(keyspace.ID{Node: e.addr, DB: e.db}, s) }
}

// take counts one more page.
func (g *scanProgress) take(from keyspace.ID, s keyspace.Snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen[from] = s.Cost
	g.locks += len(s.Locks)
	now := time.Now()
	if now.Sub(g.said) < g.every {
		return
	}
	g.said = now
	if g.over {
		fmt.Fprintf(g.notes.to, "\r\x1b[K%s", g.line(now))
		return
	}
	g.notes.note("%s", g.line(now))
}

// line describes the progress and estimates the remaining time.
func (g *scanProgress) line(now time.Time) string {
	var scanned, keys int64
	var busy time.Duration
	for _, c := range g.seen {
		scanned, keys, busy = scanned+c.Scanned, keys+c.Keys, busy+c.ServerTime
	}
	passed := now.Sub(g.begun)
	s := fmt.Sprintf("%s of %s, %s", humanize.Count(scanned), humanize.Plural(keys, "key"), humanize.Plural(g.locks, "lock"))
	if scanned > 0 && keys > scanned {
		s += fmt.Sprintf(", %s to go", humanize.Duration(time.Duration(float64(passed)*float64(keys-scanned)/float64(scanned))))
	}
	return s + fmt.Sprintf(", %.0f%% of the server's time", 100*busy.Seconds()/passed.Seconds())
}

// done erases the line.
func (g *scanProgress) done() {
	if g != nil && g.over {
		_, _ = io.WriteString(g.notes.to, "\r\x1b[K")
	}
}
