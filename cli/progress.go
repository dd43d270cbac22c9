package cli

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// progressLine shows how far a command is on stderr: on a terminal one line that changes,
// otherwise one line per report.
type progressLine struct {
	notes messages
	live  bool // overwrite the line
}

func (p *program) newProgressLine() progressLine {
	f, ok := p.notes.to.(*os.File)
	return progressLine{notes: p.notes, live: ok && !p.notes.json && term.IsTerminal(f.Fd())}
}

func (l progressLine) show(text string) {
	if l.live {
		fmt.Fprintf(l.notes.to, "\r\x1b[K%s", widget.Plain(text))
		return
	}
	l.notes.note("%s", text)
}

// clear erases the line.
func (l progressLine) clear() {
	if l.live {
		fmt.Fprint(l.notes.to, "\r\x1b[K")
	}
}

// scanProgress reports the progress of a scan. It is safe for concurrent use.
type scanProgress struct {
	line  progressLine
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
	line := p.newProgressLine()
	if !line.live && !wanted {
		return nil
	}
	now := time.Now()
	g := &scanProgress{line: line, every: time.Second, begun: now, said: now, seen: make(map[keyspace.ID]keyspace.Cost)}
	if line.live {
		g.every = 100 * time.Millisecond
	}
	return g
}

// of returns a function for the snapshots of one server and database; nil if g is
// nil.
func (g *scanProgress) of(from keyspace.ID) func(keyspace.Snapshot) {
	if g == nil {
		return nil
	}
	return func(s keyspace.Snapshot) { g.take(from, s) }
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
	g.line.show(g.text(now))
}

// text describes the progress and estimates the remaining time.
func (g *scanProgress) text(now time.Time) string {
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
	if g != nil {
		g.line.clear()
	}
}
