package render

import (
	"fmt"
	"io"
	"strings"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/tui/widget"
)

// Contention prints a table of at most n classes, and below it the n holders that are to blame
// for most of the waiting, with lines up to width cells if possible; 0 = no limit.
func Contention(w io.Writer, r contention.Report, databases bool, n, width int) error {
	var out strings.Builder
	classes := [][]string{{"CLASS", "LOCKS", "HELD", "WAITERS", "TRIES/ACQ", "BLOCKED", "WORST HOLDER", "WAIT P50", "P99", "SOURCE"}}
	for _, c := range r.Classes[:min(n, len(r.Classes))] {
		classes = append(classes, classRow(c, databases))
	}
	write(&out, classes, []Column{{Least: 12}, {Spare: 4}, {}, {}, {Spare: 3}, {}, {Least: 14}, {}, {Spare: 2}, {}}, width)
	if len(r.Blames) > 0 {
		out.WriteString("\nBlocked by\n")
		blames := [][]string{{"HOLDER", "LOCK", "CLIENTS", "TOTAL", "LONGEST", "SOURCE"}}
		for _, b := range r.Blames[:min(n, len(r.Blames))] {
			blames = append(blames, []string{
				ShortKey(b.Holder), ShortKey(LockName(b.Lock, databases)), atLeast(b.Source == contention.Asked) + humanize.Count(b.Clients),
				atLeast(b.Source == contention.Asked) + humanize.Duration(b.Total), atLeast(b.Source == contention.Asked) + humanize.Duration(b.Longest), string(b.Source),
			})
		}
		write(&out, blames, []Column{{Least: 14}, {Least: 12}, {}, {}, {}, {}}, width)
	}
	fmt.Fprintf(&out, "%s\n", spanOf(r))
	return Written(w, out.String())
}

// write prints the rows of a table.
func write(out *strings.Builder, rows [][]string, cols []Column, width int) {
	widths := Narrow(cols, NaturalWidths(rows), width)
	for _, row := range rows {
		out.WriteString(TableRow(row, widths))
	}
}

// classRow returns the cells of a class. Without any waiting they say nothing about it.
func classRow(c contention.Class, databases bool) []string {
	name := c.Name
	if databases {
		name = fmt.Sprintf("%d:%s", c.DB, name)
	}
	tries := ""
	switch {
	case c.Acquired > 0:
		tries = fmt.Sprintf("%.1f", float64(c.Attempts)/float64(c.Acquired))
	case c.Attempts > 0:
		tries = humanize.Count(c.Attempts) + "/0"
	}
	row := []string{ShortKey(name), humanize.Count(c.Locks), percent(c.Held), "", tries, "", "", "", "", string(c.Source)}
	if c.Source == "" {
		return row
	}
	row[3] = atLeast(c.Source == contention.Asked) + humanize.Count(c.MostWaiting)
	row[5] = fmt.Sprintf("%s%.2f s/s", atLeast(c.Source == contention.Asked), c.Blocked)
	if c.Worst != "" {
		row[6] = fmt.Sprintf("%s %s", ShortKey(c.Worst), percent(c.WorstShare))
	}
	if c.Source != contention.Asked {
		row[7], row[8] = atLeast(c.P50.AtLeast)+humanize.Duration(c.P50.Duration), atLeast(c.P99.AtLeast)+humanize.Duration(c.P99.Duration)
	}
	return row
}

// atLeast marks a lower bound.
func atLeast(bound bool) string {
	if bound {
		return "≥"
	}
	return ""
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// spanOf says for how long the figures were seen.
func spanOf(r contention.Report) string {
	text := "watched for " + humanize.Duration(r.Watched.Duration())
	if r.Monitored.Duration() > 0 {
		return text + ", MONITOR ran for " + humanize.Duration(r.Monitored.Duration()) + " of it"
	}
	return text + "; clients that only poll are seen with --monitor"
}

// Folded prints a line for each waiter of each holder: the class, the key, the holder and the
// waiter, with semicolons between them, and the milliseconds of waiting.
func Folded(w io.Writer, r contention.Report) error {
	var out strings.Builder
	frame := func(s string) string { return strings.NewReplacer(";", ",", " ", "_").Replace(widget.Plain(s)) }
	for _, b := range r.Waits {
		waiter := b.Waiter
		if waiter == "" {
			waiter = "(not named)"
		}
		fmt.Fprintf(&out, "%s;%s;%s;%s %d\n", frame(keyspace.ClassOf(b.Lock.Key)), frame(b.Lock.Key), frame(b.Holder), frame(waiter), b.Waited.Milliseconds())
	}
	return Written(w, out.String())
}

// ContentionDocument is the output of `contention --json`.
type ContentionDocument struct {
	Watched    TimeSpan          `json:"watched"`
	Complete   bool              `json:"complete"`
	Monitored  *TimeSpan         `json:"monitored,omitempty"` // absent = MONITOR did not run
	Classes    []ContentionClass `json:"classes"`             // those with the most waiting first
	BlockedBy  []ContentionBlame `json:"blocked_by"`          // those with the most waiting first
	MoreClass  int               `json:"more_classes"`
	MoreBlamed int               `json:"more_blocked_by"`
}

// TimeSpan is a time on the server's clock.
type TimeSpan struct {
	From  string `json:"from"`
	Until string `json:"until"`
}

func spanTimes(s contention.Span) TimeSpan { return TimeSpan{Timestamp(s.From), Timestamp(s.Until)} }

// ContentionClass is the contention for the locks of a class.
type ContentionClass struct {
	Class       string        `json:"class"`
	DB          int           `json:"db"`
	Locks       int           `json:"locks"`
	Held        float64       `json:"held"`         // share of the time, 0 to 1
	By          string        `json:"by"`           // stored, asked or seen; "" = no waiting was seen
	MostWaiting int           `json:"most_waiting"` // at the same time
	Blocked     float64       `json:"blocked_s_per_s"`
	WaitedMS    int64         `json:"waited_ms"`
	Attempts    int           `json:"attempts"` // 0 without MONITOR
	Acquired    int           `json:"acquired"` // 0 without MONITOR
	Worst       string        `json:"worst_holder"`
	WorstShare  float64       `json:"worst_share"` // of the waiting, 0 to 1
	P50         *WaitQuantile `json:"wait_p50,omitempty"`
	P99         *WaitQuantile `json:"wait_p99,omitempty"`
}

// WaitQuantile is a quantile of waits.
type WaitQuantile struct {
	MS      int64 `json:"ms"`
	AtLeast bool  `json:"at_least"` // it may be longer
}

// ContentionBlame is the waiting that a holder has caused.
type ContentionBlame struct {
	Holder    string       `json:"holder"`
	Key       string       `json:"key"`
	KeyB64    string       `json:"key_b64,omitempty"`
	Node      string       `json:"node"`
	DB        int          `json:"db"`
	By        string       `json:"by"`
	Clients   int          `json:"clients"`
	TotalMS   int64        `json:"total_ms"`
	LongestMS int64        `json:"longest_ms"`
	Waiters   []WaiterTime `json:"waiters"`
}

// WaiterTime is how long a client waited for a holder.
type WaiterTime struct {
	Waiter   string `json:"waiter"` // "" = only the number of waiters is known
	WaitedMS int64  `json:"waited_ms"`
}

// ContentionOf returns the document for at most n classes and n holders. complete says that all locks were seen.
func ContentionOf(r contention.Report, complete bool, n int) ContentionDocument {
	classes, blames := r.Classes[:min(n, len(r.Classes))], r.Blames[:min(n, len(r.Blames))]
	d := ContentionDocument{
		Watched: spanTimes(r.Watched), Complete: complete,
		Classes: []ContentionClass{}, BlockedBy: []ContentionBlame{}, MoreClass: len(r.Classes) - len(classes), MoreBlamed: len(r.Blames) - len(blames),
	}
	if r.Monitored.Duration() > 0 {
		d.Monitored = new(spanTimes(r.Monitored))
	}
	for _, c := range classes {
		k := ContentionClass{
			Class: Text(c.Name), DB: c.DB, Locks: c.Locks, Held: c.Held, By: string(c.Source), MostWaiting: c.MostWaiting, Blocked: c.Blocked,
			WaitedMS: c.Waited.Milliseconds(), Attempts: c.Attempts, Acquired: c.Acquired, Worst: Text(c.Worst), WorstShare: c.WorstShare,
		}
		if c.Source == contention.Stored || c.Source == contention.Seen {
			k.P50, k.P99 = &WaitQuantile{c.P50.Milliseconds(), c.P50.AtLeast}, &WaitQuantile{c.P99.Milliseconds(), c.P99.AtLeast}
		}
		d.Classes = append(d.Classes, k)
	}
	for _, b := range blames {
		j := ContentionBlame{
			Holder: Text(b.Holder), Key: Text(b.Lock.Key), KeyB64: Base64(b.Lock.Key), Node: b.Lock.Node, DB: b.Lock.DB, By: string(b.Source),
			Clients: b.Clients, TotalMS: b.Total.Milliseconds(), LongestMS: b.Longest.Milliseconds(), Waiters: []WaiterTime{},
		}
		for _, w := range r.Waits {
			if w.Lock == b.Lock && w.Holder == b.Holder {
				j.Waiters = append(j.Waiters, WaiterTime{Text(w.Waiter), w.Waited.Milliseconds()})
			}
		}
		d.BlockedBy = append(d.BlockedBy, j)
	}
	return d
}
