package render

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

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
		Holders: []keyspace.Holder{{ID: "8743c9c0-0795-4907-87fd-6c719a6b4586:52", Depth: 3}},
		Waiters: []keyspace.Waiter{{ID: "a"}, {ID: "b"}},
	}
	nightly := keyspace.Lock{
		Key: "job:nightly", Format: "set-nx", Kind: keyspace.Mutex,
		Holders: []keyspace.Holder{{ID: "token", Label: "cron-2", Depth: 1, Since: noon.Add(-2 * time.Minute)}},
	}
	catalog := keyspace.Lock{
		Key: "rw:catalog", Format: "redisson-rw", Kind: keyspace.RW, Expires: noon.Add(7500 * time.Millisecond),
		Holders: []keyspace.Holder{{ID: "api-1:1", Depth: 1, Mode: keyspace.Read}, {ID: "api-2:7", Depth: 2, Mode: keyspace.Read}},
	}
	p := pictureOf(orders, nightly, catalog)
	p.Cost.Scanned = 1204
	p.Findings = map[keyspace.ID][]keyspace.Finding{
		nightly.ID(): {{Problem: keyspace.Problem{ID: "never-expires", Severity: keyspace.Critical}, Text: "It has no TTL."}},
	}
	return p
}

func TestRemediesNameCommands(t *testing.T) {
	for _, p := range keyspace.FindingProblems() {
		got, acts := Remedy(keyspace.Finding{Problem: p}), strings.Contains(p.Remedy, "{deadline}") || strings.Contains(p.Remedy, "{release}")
		check.True(t, !strings.Contains(got, "{") && strings.Contains(got, "locktop release KEY --write") == acts, "%s", got)
	}
}

func TestTheTableHasALockALine(t *testing.T) {
	want := `LOCK              KIND       FORMAT       OWNER                                    DEPTH  WAIT  HELD    TTL     STATE  FINDINGS
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
	check.True(t, strings.Contains(got, "another client read or asked for it 1 s ago, and did so in 84 % of the held time"), "got %s", got)
	j := LockOf(*job, noon, nil)
	check.True(t, *j.AskedAgoMS == 1200 && j.AskedShare == 0.84 && *j.WaiterCount == 1 && j.WaitersAtLeast && j.Waiters == nil, "got %+v", j)
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

// If all columns have their least widths and the table is still too wide, it omits as few columns as possible.
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
		got := narrow(cols, []int{10, 6, 8, 20}, width)
		check.True(t, slices.Equal(got, want), "in %d cells the columns are %d wide, want %d", width, got, want)
	}
	heads := map[int]string{
		0:  "LOCK KIND FORMAT OWNER DEPTH WAIT HELD TTL STATE FINDINGS",
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
	want := `key,kind,format,confidence,mode,state,holders,depth,waiter_count,ttl_ms,fence,node,db,findings,held_ms
lock:orders:4711,reentrant,redisson,no,,held,8743c9c0-0795-4907-87fd-6c719a6b4586:52,3,2,13500,,,0,,
job:nightly,mutex,set-nx,no,,held,token,1,,-1,,,0,never-expires,120000
rw:catalog,rw,redisson-rw,no,read,read,api-1:1 api-2:7,2,0,7500,,,0,,
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
		p.Findings = map[keyspace.ID][]keyspace.Finding{l.ID(): {{Problem: keyspace.Problem{ID: "x", Remedy: s}, Text: s}}}
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
		l.Holders = append(l.Holders, keyspace.Holder{ID: strings.Repeat("x", 4096), Depth: 1})
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

var noon = time.Date(2026, 11, 20, 12, 31, 7, 120_000_000, time.UTC)

// pictureOf returns a view of locks at noon, without findings.
func pictureOf(locks ...keyspace.Lock) View {
	snap := keyspace.Snapshot{At: noon, Complete: true}
	for i := range locks {
		snap.Locks = append(snap.Locks, &locks[i])
	}
	return View{Snapshot: snap}
}

// textOf returns what a function writes.
func textOf(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var out strings.Builder
	check.NoError(t, write(&out))
	return out.String()
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	return textOf(t, func(w io.Writer) error { return JSON(w, v) })
}

func TestTheDocumentIsTheOneOfTheContract(t *testing.T) {
	l := keyspace.Lock{
		Key: "lock:orders:4711", Format: "redisson", Confidence: keyspace.Certain, Kind: keyspace.Reentrant,
		Holders: []keyspace.Holder{{ID: "8743c9c0-0795-4907-87fd-6c719a6b4586:52", Depth: 3, Mode: keyspace.Write, Expires: noon.Add(13500 * time.Millisecond)}},
		Waiters: []keyspace.Waiter{{ID: "w", Since: noon.Add(-9 * time.Second)}, {ID: "v"}},
		Expires: noon.Add(13500 * time.Millisecond),
		Node:    "127.0.0.1:6379",
	}
	p := pictureOf(l)
	p.Cost = keyspace.Cost{Scanned: 1001500, Commands: 1420, WaitTime: 812 * time.Millisecond}
	p.Server = keyspace.Server{Mode: "standalone", Version: "7.0.15", Product: "redis"}
	p.Findings = map[keyspace.ID][]keyspace.Finding{
		l.ID(): {{Problem: keyspace.Problem{ID: "overdue", Severity: keyspace.Warning, Remedy: "Wait."}, Text: "It is long."}},
	}
	want := `{"at":"2026-11-20T12:31:07.120Z","complete":true,"problems":[],"server":{"mode":"standalone","product":"redis","version":"7.0.15"},"nodes":[],` +
		`"cost":{"scanned_count":1001500,"command_count":1420,"wait_ms":812},` +
		`"locks":[{"key":"lock:orders:4711","node":"127.0.0.1:6379","db":0,"kind":"reentrant","format":"redisson","confidence":"certain","evidence":[],` +
		`"mode":"write","state":"write","holders":[{"id":"8743c9c0-0795-4907-87fd-6c719a6b4586:52","depth":3,"mode":"write","ttl_ms":13500}],` +
		`"waiters":[{"id":"w","waited_ms":9000},{"id":"v"}],"waiter_count":2,"ttl_ms":13500,` +
		`"findings":[{"id":"overdue","severity":"warning","text":"It is long.","remedy":"Wait."}]}]}` + "\n"
	got := encoded(t, DocumentOf(p))
	check.True(t, got == want, "got  %swant %s", got, want)
}

func TestNothingFoundIsAnEmptyArray(t *testing.T) {
	got := encoded(t, DocumentOf(pictureOf()))
	check.True(t, strings.Contains(got, `"locks":[]`), "got %s", got)
	got = encoded(t, DocumentOf(pictureOf(keyspace.Lock{Key: "k"})))
	check.False(t, strings.Contains(got, "null"), "a lock without holders, waiters and findings has a null: %s", got)
}

func TestOnlyWhatNeverExpiresHasTheTTLOfNever(t *testing.T) {
	for expires, want := range map[time.Time]int64{
		{}: -1, noon.Add(1500 * time.Millisecond): 1500, noon: 0, noon.Add(-time.Millisecond): 0, noon.Add(-time.Hour): 0,
	} {
		check.Equal(t, TTL(expires, noon), want, "%s", expires)
	}
}

// hostile are names and values as an attacker would choose them: control
// characters, invisible characters and look-alikes.
var hostile = []string{
	"lock:\x1b[2J\x1b]0;x\x07", "lock:\x1b]52;c;ZXZpbA==\x07", "lock:\x1b]8;;http://evil\x1b\\x", "lock:\x1bP1$r\x1b\\",
	"lock:\x9b31m", "lock:\u009b31m", "lock:\u0085x", "lock:a\rlock:b", "lock:a\nlock:b", "lock:a\r\nb", "lock:a\bb\x00c\x07",
	"lock:\x7f", "lock:\u202egood", "lock:\u2066x\u2069", "lock:\u200b", "lock:\ufeff", "lock:\u00ad", "lock:\U000e0041",
	"lock:\u2028x\u2029", "lock:\xff\xfe", "lock:\xc3", "lock:\xed\xa0\x80", "lock:" + strings.Repeat("\u0301", 50), `lock:\x1b`, `lock:"'<>&,;|`,
	"=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "'=1", " ", "",
}

func TestJSONShowsNothingInvisibleAndLosesNothing(t *testing.T) {
	for _, s := range hostile {
		out := encoded(t, DocumentOf(pictureOf(keyspace.Lock{
			Key: s, Node: s, Holders: []keyspace.Holder{{ID: s, Label: s}}, Waiters: []keyspace.Waiter{{ID: s}},
		})))
		i := strings.IndexFunc(strings.TrimSuffix(out, "\n"), func(r rune) bool { return !unicode.IsPrint(r) })
		check.True(t, i < 0 && utf8.ValidString(out), "%q: unprintable at %d of %q", s, i, out)
		var back struct {
			Locks []struct {
				Key     string
				KeyB64  []byte `json:"key_b64"`
				Holders []struct {
					ID    string
					IDB64 []byte `json:"id_b64"`
				}
			}
		}
		err := json.Unmarshal([]byte(out), &back)
		check.Require(t, err == nil, "%q: %v in %s", s, err, out)
		l := back.Locks[0]
		if !utf8.ValidString(s) {
			l.Key, l.Holders[0].ID = string(l.KeyB64), string(l.Holders[0].IDB64)
		}
		check.True(t, l.Key == s && l.Holders[0].ID == s, "key %q came back as %q, holder as %q", s, l.Key, l.Holders[0].ID)
	}
}

func TestAnEventIsTheLineOfTheContract(t *testing.T) {
	got := encoded(t, EventOf(keyspace.Event{
		At: noon, Kind: keyspace.Renewed, Held: 1500 * time.Millisecond,
		Lock:   keyspace.Lock{Key: "lock:a", Format: "set-nx", Node: "127.0.0.1:6379", DB: 3, Expires: noon.Add(10 * time.Second)},
		Holder: keyspace.Holder{ID: "token", Label: "api-1"},
	}))
	want := `{"at":"2026-11-20T12:31:07.120Z","event":"renewed","key":"lock:a","node":"127.0.0.1:6379","db":3,"format":"set-nx","holder":{"id":"token","label":"api-1","ttl_ms":-1},"held_ms":1500,"ttl_ms":10000}` + "\n"
	check.True(t, got == want, "got  %swant %s", got, want)
}

// A theft has two clients: the holder whose lock it was, and the next one.
func TestAStolenLockNamesBothHolders(t *testing.T) {
	thief := keyspace.Holder{ID: "token-2", Label: "thief"}
	victim := keyspace.Holder{ID: "token-1", Label: "victim"}
	for _, c := range []struct {
		kind    keyspace.EventKind
		after   []keyspace.Holder
		text    string
		takenBy string
	}{
		{keyspace.Stolen, []keyspace.Holder{thief}, "stolen lock:a from victim, held for 1.5 s, taken by thief, 2 waiting, set-nx", "token-2"},
		{keyspace.Lost, []keyspace.Holder{thief}, "lost lock:a of victim, held for 1.5 s, taken by thief, 2 waiting, set-nx", "token-2"},
		{keyspace.Lost, []keyspace.Holder{victim}, "lost lock:a of victim, held for 1.5 s, 2 waiting, set-nx", ""}, // as it was last
		{keyspace.Replaced, []keyspace.Holder{thief}, "replaced lock:a from victim, held for 1.5 s, then thief, 2 waiting, set-nx", "token-2"},
		{keyspace.Released, []keyspace.Holder{thief}, "released lock:a of victim, held for 1.5 s, or deleted, 2 waiting, set-nx", ""},
	} {
		e := keyspace.Event{
			At: noon, Kind: c.kind, Held: 1500 * time.Millisecond, Holder: victim,
			Lock: keyspace.Lock{Key: "lock:a", Format: "set-nx", Holders: c.after, Waiting: 2},
		}
		got := EventSentence(e, nil, false)
		check.True(t, strings.HasSuffix(got, " "+c.text), "got  %q\nwant %q", got, c.text)
		if got := EventOf(e); got.Holder.ID != "token-1" || (got.TakenBy == nil) != (c.takenBy == "") || got.TakenBy != nil && got.TakenBy.ID != c.takenBy {
			t.Errorf("%s: %+v", c.kind, got)
		}
	}
}
