package render

import (
	"encoding/csv"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/tui/widget"
)

func printed(t *testing.T, print func(io.Writer, View) error, p View) string {
	t.Helper()
	return textOf(t, func(w io.Writer) error { return print(w, p) })
}

func tableOf(width int) func(io.Writer, View) error {
	return func(w io.Writer, p View) error { return Table(w, p, width) }
}

func threeLocks() View {
	orders := keyspace.Lock{
		Key: "lock:orders:4711", Format: "redisson", Kind: keyspace.Reentrant, Expires: noon.Add(13500 * time.Millisecond),
		Holders: []keyspace.Holder{{ID: "8743c9c0-0795-4907-87fd-6c719a6b4586:52", Count: 3}},
		Waiters: []keyspace.Waiter{{ID: "a"}, {ID: "b"}},
	}
	nightly := keyspace.Lock{
		Key: "job:nightly", Format: "set-nx", Kind: keyspace.Mutex,
		Holders: []keyspace.Holder{{ID: "token", Label: "cron-2", Count: 1, Since: noon.Add(-2 * time.Minute)}},
	}
	catalog := keyspace.Lock{
		Key: "rw:catalog", Format: "redisson-rw", Kind: keyspace.RW, Expires: noon.Add(7500 * time.Millisecond),
		Holders: []keyspace.Holder{{ID: "api-1:1", Count: 1, Mode: keyspace.Read}, {ID: "api-2:7", Count: 2, Mode: keyspace.Read}},
	}
	p := pictureOf(orders, nightly, catalog)
	p.Cost.Scanned = 1204
	p.Findings = map[keyspace.ID][]keyspace.Finding{
		nightly.ID(): {{ID: "never-expires", Severity: keyspace.Critical, Text: "It has no TTL."}},
	}
	return p
}

func TestTheTableHasALockALine(t *testing.T) {
	want := `LOCK              KIND       FORMAT       OWNER                                    COUNT  WAIT  HELD    TTL     STATE  FINDINGS
lock:orders:4711  reentrant  redisson     8743c9c0-0795-4907-87fd-6c719a6b4586:52  3      2     ?       13.5 s  held
job:nightly       mutex      set-nx       cron-2                                   1      ?     2 m 00  never   held   never-expires
rw:catalog        rw         redisson-rw  api-1:1 +1                               2      0     ?       7.5 s   read
3 locks in 1,204 keys, 1 with findings
`
	got := printed(t, tableOf(0), threeLocks())
	check.True(t, got == want, "got\n%swant\n%s", got, want)
}

// Another client that has asked within 2 s is a waiter at least, where the format shows none.
func TestAnotherClientThatAsksIsAWaiterAtLeast(t *testing.T) {
	p := threeLocks()
	job, catalog := p.Locks[1], p.Locks[2]
	job.AskedAt, job.AskedPercent, catalog.AskedAt = noon.Add(-1200*time.Millisecond), 84, noon
	table := strings.Split(printed(t, tableOf(0), p), "\n")
	check.True(t, strings.Fields(table[2])[5] == "≥1", "got %q", table[2])
	check.True(t, strings.Fields(table[3])[6] == "0", "got %q", table[3]) // its format shows waiters
	got := printed(t, Plain, p)
	check.True(t, strings.Contains(got, "asked for by another client 1 s ago, in 84 % of the held time"), "got %s", got)
	j := LockOf(*job, noon, nil)
	check.True(t, *j.AskedAgo == 1 && j.AskedPercent == 84, "got %+v", j)
	got = encoded(t, LockOf(*p.Locks[0], noon, nil))
	check.False(t, strings.Contains(got, "asked"), "got %s", got)
	job.AskedAt = noon.Add(-3 * time.Second)
	line := strings.Split(printed(t, tableOf(0), p), "\n")[2]
	check.True(t, strings.Fields(line)[5] == "?", "3 s later: %q", line)
}

func TestTheTableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{80, 100, 110, 120} {
		for line := range strings.Lines(printed(t, tableOf(width), threeLocks())) {
			w := widget.Width(strings.TrimSuffix(line, "\n"))
			check.True(t, w <= width, "%d cells in a terminal of %d: %s", w, width, line)
		}
	}
}

// If all columns have their least widths and the table is still too wide, it omits as few
// columns as possible.
func TestANarrowTableOmitsColumns(t *testing.T) {
	cols := []Column{{}, {Spare: 1}, {Least: 3, Spare: 2}, {Least: 5}}
	for width, want := range map[int][]int{
		0:  {10, 6, 8, 20},
		60: {10, 6, 8, 20},
		50: {10, 6, 8, 20},
		49: {10, 6, 8, 19},
		35: {10, 6, 8, 5},
		30: {10, 6, 3, 5},
		29: {10, 6, 0, 9},
		25: {10, 6, 0, 5},
		24: {10, 0, 0, 12},
		17: {10, 0, 0, 5},
		5:  {10, 0, 0, 5},
	} {
		got := Narrow(cols, []int{10, 6, 8, 20}, width)
		check.True(t, slices.Equal(got, want), "in %d cells the columns are %d wide, want %d", width, got, want)
	}
	heads := map[int]string{
		0:  "LOCK KIND FORMAT OWNER COUNT WAIT HELD TTL STATE FINDINGS",
		80: "LOCK FORMAT OWNER WAIT HELD TTL STATE FINDINGS",
	}
	for width, want := range heads {
		head, _, _ := strings.Cut(printed(t, tableOf(width), threeLocks()), "\n")
		got := strings.Join(strings.Fields(head), " ")
		check.True(t, got == want, "in %d cells there are %s; want %s", width, got, want)
	}
}

// If the width is not limited, one long key does not widen the other rows.
func TestALongKeySticksOut(t *testing.T) {
	p := threeLocks()
	long := strings.Repeat("long:", 30)
	p.Locks[1].Key = long
	for line := range strings.Lines(printed(t, tableOf(0), p)) {
		check.True(t, widget.Width(line) <= 160 || strings.HasPrefix(line, long+"  mutex"), "%d cells: %s", widget.Width(line), line)
	}
}

func TestPlainSaysALockInASentence(t *testing.T) {
	want := `lock:orders:4711 is held by 8743c9c0-0795-4907-87fd-6c719a6b4586:52 3 times, redisson reentrant, expires in 13.5 s, 2 waiting
job:nightly is held by cron-2, set-nx mutex, never expires, critical: It has no TTL.
rw:catalog is read by api-1:1 and api-2:7 2 times, redisson-rw rw, expires in 7.5 s
`
	got := printed(t, Plain, threeLocks())
	check.True(t, got == want, "got\n%swant\n%s", got, want)
}

func TestCSVIsWhatSpreadsheetsRead(t *testing.T) {
	want := `key,kind,format,confidence,mode,state,holders,count,waiter_count,ttl_ms,fence,node,db,findings,held_ms
lock:orders:4711,reentrant,redisson,no,,held,8743c9c0-0795-4907-87fd-6c719a6b4586:52,3,2,13500,0,,0,,
job:nightly,mutex,set-nx,no,,held,token,1,0,-1,0,,0,never-expires,120000
rw:catalog,rw,redisson-rw,no,read,read,api-1:1 api-2:7,2,0,7500,0,,0,,
`
	got := printed(t, CSV, threeLocks())
	check.True(t, got == want, "got\n%swant\n%s", got, want)
}

func TestNoFormPrintsWhatATerminalActsOn(t *testing.T) {
	forms := map[string]func(io.Writer, View) error{"table": tableOf(0), "narrow table": tableOf(80), "plain": Plain, "csv": CSV}
	empty := map[string]int{}
	for name, print := range forms {
		empty[name] = strings.Count(printed(t, print, pictureOf()), "\n")
	}
	for _, s := range hostile {
		l := keyspace.Lock{Key: s, Node: s, Holders: []keyspace.Holder{{ID: s, Label: s}}, Waiters: []keyspace.Waiter{{ID: s}}}
		p := pictureOf(l)
		p.Findings = map[keyspace.ID][]keyspace.Finding{l.ID(): {{ID: "x", Text: s, Remedy: s}}}
		for name, print := range forms {
			out := printed(t, print, p)
			lines := strings.Count(out, "\n")
			check.True(t, lines == empty[name]+1, "%s of %q has %d lines more than of nothing, want 1: %q", name, s, lines-empty[name], out)
			check.False(t, strings.ContainsFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) || unicode.IsMark(r) }),
				"%s of %q: %q", name, s, out)
		}
		e := EventSentence(keyspace.Event{At: noon, Kind: keyspace.Acquired, Lock: l, Holder: l.Holders[0], Waiter: l.Waiters[0]}, p.Findings[l.ID()], true)
		check.False(t, strings.ContainsFunc(e, func(r rune) bool { return !unicode.IsPrint(r) }), "event of %q: %q", s, e)
	}
}

func TestNoCellOfCSVIsAFormula(t *testing.T) {
	for _, s := range hostile {
		l := keyspace.Lock{Key: s, Node: s, Holders: []keyspace.Holder{{ID: s}}}
		rows, err := csv.NewReader(strings.NewReader(printed(t, CSV, pictureOf(l)))).ReadAll()
		check.Require(t, err == nil, "%q: %v", s, err)
		for i, c := range rows[1] {
			number := rows[0][i] == "ttl_ms"
			check.True(t, number || c == "" || !strings.ContainsAny(c[:1], "=+-@\t\r"), "%s of %q is %q", rows[0][i], s, c)
		}
	}
}

func TestLinesForPeopleDoNotGrowWithWhatIsStored(t *testing.T) {
	l := keyspace.Lock{Key: "k", Kind: keyspace.Semaphore, Format: "f"}
	for range 256 {
		l.Holders = append(l.Holders, keyspace.Holder{ID: strings.Repeat("x", 4096), Count: 1})
	}
	p := View{Snapshot: keyspace.Snapshot{Locks: []*keyspace.Lock{&l}}}
	for line := range strings.Lines(printed(t, Plain, p) + printed(t, tableOf(0), p)) {
		check.True(t, len(line) <= 2000, "a line of %d bytes: %s", len(line), line)
	}
}

func TestAShortKeyIsShownWhole(t *testing.T) {
	for _, c := range []struct{ key, want string }{
		{"lock:a", "lock:a"},
		{strings.Repeat("k", KeyWidth), strings.Repeat("k", KeyWidth)},
		{strings.Repeat("k", KeyWidth+1), strings.Repeat("k", KeyEnd) + "…" + strings.Repeat("k", KeyEnd) + " [201 bytes, sha256 4fb6ac5a]"},
		{"lock:" + strings.Repeat("東", 100), "lock:" + strings.Repeat("東", 18) + "…" + strings.Repeat("東", 20) + " [305 bytes, sha256 "},
		{strings.Repeat("\x01", 60), strings.Repeat(`\x01`, 60) + "…" + strings.Repeat(`\x01`, 60) + " [60 bytes"},
	} {
		got := ShortKey(c.key)
		if strings.HasSuffix(c.want, "]") {
			c.want = c.want[:strings.LastIndex(c.want, " ")+1]
		}
		check.True(t, strings.HasPrefix(got, c.want), "%q: %s, want %s", c.key, got, c.want)
	}
	at := LockName(keyspace.ID{Key: "a", DB: 2}, true)
	check.True(t, at == "a (database 2)", "%v", at)
}
