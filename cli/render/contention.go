package render

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/holds"
	"locktop/tui/widget"
)

// Contention prints a table of at most n classes, and below it the n holders that are to blame
// for most of the waiting, with lines up to width cells if possible; 0 = no limit.
func Contention(w io.Writer, r contention.Report, databases bool, n, width int) error {
	var out strings.Builder
	Rows(&out, []Column{{"CLASS", 12, 0}, {"LOCKS", 0, 4}, {"HELD", 0, 0}, {"WAITERS", 0, 0}, {"TRIES/ACQ", 0, 3}, {"BLOCKED", 0, 0},
		{"WORST HOLDER", 14, 0}, {"WAIT P50", 0, 0}, {"P99", 0, 2}, {"KNOWN BY", 0, 0}},
		Each(r.Classes[:min(n, len(r.Classes))], func(c contention.Class) []string { return classRow(c, databases) }), width)
	if len(r.Classes) == 0 {
		out.WriteString("no lock was seen\n")
	}
	if len(r.Blames) > 0 {
		out.WriteString("\nBlocked by\n")
		blames := Each(r.Blames[:min(n, len(r.Blames))], func(b contention.Blame) []string {
			return []string{
				ShortKey(cmp.Or(b.Holder, "?")), ShortKey(LockName(b.Lock, databases)), atLeast(b.Source) + humanize.Count(b.Clients),
				atLeast(b.Source) + humanize.Duration(b.Total), atLeast(b.Source) + humanize.Duration(b.Longest), string(b.Source),
			}
		})
		Rows(&out, []Column{{"HOLDER", 14, 0}, {"LOCK", 12, 0}, {"CLIENTS", 0, 0}, {"TOTAL", 0, 0}, {"LONGEST", 0, 0}, {"KNOWN BY", 0, 0}}, blames, width)
	}
	writeEnd(&out, r)
	return Written(w, out.String())
}

// writeEnd prints the deadlocks and the inversions, and for how long the locks were watched.
func writeEnd(out *strings.Builder, r contention.Report) {
	for _, f := range r.Findings {
		fmt.Fprintf(out, "\n%s: %s %s\n", f.ID, widget.Plain(f.Text), Remedy(f))
	}
	fmt.Fprintf(out, "%s\n", watchedFor(r))
}

// Orders prints at most n orders in which owners acquire locks, and which of all orders can deadlock.
func Orders(w io.Writer, r contention.Report, n, width int) error {
	var out strings.Builder
	var rows [][]string
	for _, s := range r.Orders[:min(n, len(r.Orders))] {
		rows = append(rows, []string{ShortKey(s.First), ShortKey(s.Second), humanize.Count(s.Count), ShortKey(s.Owner)})
	}
	if len(rows) == 0 {
		out.WriteString("no owner was seen to acquire a lock while it held another\n")
	} else {
		Rows(&out, []Column{{"FIRST", 12, 0}, {"THEN", 12, 0}, {"TIMES", 0, 0}, {"FIRST SEEN OF", 14, 0}}, rows, width)
	}
	writeEnd(&out, r)
	return Written(w, out.String())
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
	row[3] = atLeast(c.Source) + humanize.Count(c.MostWaiting)
	row[5] = fmt.Sprintf("%s%.2f s/s", atLeast(c.Source), c.Blocked)
	if c.Worst != "" {
		row[6] = fmt.Sprintf("%s %s", ShortKey(c.Worst), percent(c.WorstShare))
	}
	if c.Source != holds.Asked {
		row[7], row[8] = quantile(c.P50), quantile(c.P99)
	}
	return row
}

// atLeast marks the figures of a rung that are lower bounds.
func atLeast(r holds.Source) string {
	if r == holds.Asked {
		return "≥"
	}
	return ""
}

func percent(share float64) string {
	if math.IsNaN(share) {
		return "?"
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

func quantile(q contention.Quantile) string {
	if q.AtLeast {
		return "≥" + humanize.Duration(q.Duration)
	}
	return humanize.Duration(q.Duration)
}

// watchedFor says for how long the figures were seen.
func watchedFor(r contention.Report) string {
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
		holder, waiter := cmp.Or(b.Holder, "(not known)"), cmp.Or(b.Waiter, "(not named)")
		fmt.Fprintf(&out, "%s;%s;%s;%s %d\n", frame(keyspace.ClassOf(b.Lock.Key)), frame(b.Lock.Key), frame(holder), frame(waiter), b.Waited.Milliseconds())
	}
	return Written(w, out.String())
}

// ContentionDocument is the output of `contention --json`.
type ContentionDocument struct {
	Span
	Complete         bool              `json:"complete"`
	Problems         []string          `json:"problems"`
	Monitored        *Span             `json:"monitored,omitzero"` // absent: MONITOR did not run
	Classes          []ContentionClass `json:"classes"`            // those with the most waiting first
	ClassesOmitted   int               `json:"classes_omitted"`
	BlockedBy        []ContentionBlame `json:"blocked_by"` // those with the most waiting first
	BlockedByOmitted int               `json:"blocked_by_omitted"`
	Findings         []KeyedFinding    `json:"findings"`        // deadlocks, and orders of locks that can deadlock
	Orders           []LockOrder       `json:"orders,omitzero"` // absent: not asked for
}

// LockOrder is an order in which owners acquire two locks, of two classes or of one.
type LockOrder struct {
	Outer    string `json:"outer"`
	Inner    string `json:"inner"`
	Count    int    `json:"count"`
	Holder   Holder `json:"holder"` // of the first time
	OuterKey string `json:"outer_key"`
	InnerKey string `json:"inner_key"`
}

// Span is a time on the server's clock.
type Span struct {
	From  string `json:"from,omitzero"`
	Until string `json:"until,omitzero"`
}

// ContentionClass is the contention for the locks of a class.
type ContentionClass struct {
	Class         string   `json:"class"`
	DB            int      `json:"db"`
	LockCount     int      `json:"lock_count"`
	HeldShare     *float64 `json:"held_share,omitzero"`
	AttemptCount  int      `json:"attempt_count,omitzero"`
	AcquiredCount *int     `json:"acquired_count,omitzero"`
	*ClassWaits            // nil: no waiting was seen
}

// ClassWaits is the waiting for the locks of a class.
type ClassWaits struct {
	KnownBy          holds.Source `json:"known_by"`
	WaitersAtLeast   bool         `json:"waiters_at_least,omitzero"` // asked: of all figures
	WaiterCountMax   int          `json:"waiter_count_max"`          // at the same time
	WaiterCountMean  float64      `json:"waiter_count_mean"`
	WaitedMS         int64        `json:"waited_ms"`
	WorstHolder      *Holder      `json:"worst_holder,omitzero"`
	WorstHolderShare float64      `json:"worst_holder_share,omitzero"` // of the waiting
	P50MS            *int64       `json:"wait_p50_ms,omitzero"`
	P50AtLeast       bool         `json:"wait_p50_at_least,omitzero"`
	P99MS            *int64       `json:"wait_p99_ms,omitzero"`
	P99AtLeast       bool         `json:"wait_p99_at_least,omitzero"`
}

// ContentionBlame is the waiting that a holder has caused.
type ContentionBlame struct {
	LockID
	Holder        Holder       `json:"holder,omitzero"` // absent: not known
	KnownBy       holds.Source `json:"known_by"`
	ClientCount   int          `json:"client_count"`
	WaitedMS      int64        `json:"waited_ms"`
	WaitedAtLeast bool         `json:"waited_at_least,omitzero"`
	LongestMS     int64        `json:"longest_wait_ms"`
	Waiters       []Waiter     `json:"waiters"`
}

// ContentionOf returns the document for at most n classes and n holders. last is the last snapshot.
func ContentionOf(r contention.Report, last keyspace.Snapshot, n int) ContentionDocument {
	classes, blames := r.Classes[:min(n, len(r.Classes))], r.Blames[:min(n, len(r.Blames))]
	d := ContentionDocument{
		Span: spanOf(r.Watched), Complete: last.Complete, Problems: Each(last.Problems, Text), Classes: Each(classes, classOf),
		ClassesOmitted: len(r.Classes) - len(classes), BlockedByOmitted: len(r.Blames) - len(blames),
		Findings: Each(r.Findings, KeyedFindingOf),
	}
	if r.Orders != nil {
		d.Orders = Each(r.Orders, func(s keyspace.Step) LockOrder {
			return LockOrder{Text(s.First), Text(s.Second), s.Count, Holder{Label: Text(s.Owner)}, Text(s.Locks[0].Key), Text(s.Locks[1].Key)}
		})
	}
	if r.Monitored.Duration() > 0 {
		d.Monitored = new(spanOf(r.Monitored))
	}
	d.BlockedBy = Each(blames, func(b contention.Blame) ContentionBlame {
		j := ContentionBlame{
			LockID: LockIDOf(b.Lock), Holder: Holder{Label: Text(b.Holder)}, KnownBy: b.Source, ClientCount: b.Clients, WaitedMS: b.Total.Milliseconds(),
			WaitedAtLeast: b.Source == holds.Asked, LongestMS: b.Longest.Milliseconds(), Waiters: []Waiter{},
		}
		for _, w := range r.Waits {
			if w.Lock == b.Lock && w.Holder == b.Holder {
				j.Waiters = append(j.Waiters, Waiter{Label: Text(w.Waiter), WaitedMS: lasting(w.Waited), WaitedAtLeast: j.WaitedAtLeast})
			}
		}
		return j
	})
	return d
}

func spanOf(s contention.Span) Span { return Span{Timestamp(s.From), Timestamp(s.Until)} }

func classOf(c contention.Class) ContentionClass {
	j := ContentionClass{Class: Text(c.Name), DB: c.DB, LockCount: c.Locks, AttemptCount: c.Attempts}
	if !math.IsNaN(c.Held) {
		j.HeldShare = &c.Held
	}
	if c.Attempts > 0 {
		j.AcquiredCount = &c.Acquired
	}
	if c.Source == "" {
		return j
	}
	j.ClassWaits = &ClassWaits{
		KnownBy: c.Source, WaitersAtLeast: c.Source == holds.Asked, WaiterCountMax: c.MostWaiting, WaiterCountMean: c.Blocked, WaitedMS: c.Waited.Milliseconds(),
	}
	if c.Worst != "" {
		j.WorstHolder, j.WorstHolderShare = &Holder{Label: Text(c.Worst)}, c.WorstShare
	}
	if c.Source != holds.Asked {
		j.P50MS, j.P50AtLeast = new(c.P50.Milliseconds()), c.P50.AtLeast
		j.P99MS, j.P99AtLeast = new(c.P99.Milliseconds()), c.P99.AtLeast
	}
	return j
}
