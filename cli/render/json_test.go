package render

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"locktop/internal/check"
	"locktop/keyspace"
)

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
		Holders: []keyspace.Holder{{ID: "8743c9c0-0795-4907-87fd-6c719a6b4586:52", Count: 3, Mode: keyspace.Write, Expires: noon.Add(13500 * time.Millisecond)}},
		Waiters: []keyspace.Waiter{{ID: "w", Since: noon.Add(-9 * time.Second)}, {ID: "v"}},
		Expires: noon.Add(13500 * time.Millisecond),
		Node:    "127.0.0.1:6379",
	}
	p := pictureOf(l)
	p.Cost = keyspace.Cost{Scanned: 1001500, Commands: 1420, WaitTime: 812 * time.Millisecond}
	p.Server = keyspace.Server{Mode: "standalone", Version: "7.0.15", Product: "redis"}
	p.Findings = map[keyspace.ID][]keyspace.Finding{
		l.ID(): {{ID: "overdue", Severity: keyspace.Warning, Text: "It is long.", Remedy: "Wait."}},
	}
	want := `{"at":"2026-11-20T12:31:07.120Z","server":{"mode":"standalone","version":"7.0.15","name":"redis"},"complete":true,` +
		`"cost":{"scanned":1001500,"ms":812,"commands":1420},` +
		`"locks":[{"key":"lock:orders:4711","kind":"reentrant","format":"redisson","confidence":"certain","mode":"write","state":"write",` +
		`"holders":[{"id":"8743c9c0-0795-4907-87fd-6c719a6b4586:52","label":"","count":3,"mode":"write","ttl_ms":13500}],` +
		`"waiters":[{"id":"w","mode":"","since_ms":9000},{"id":"v","mode":""}],"waiter_count":2,"ttl_ms":13500,"fence":0,"node":"127.0.0.1:6379","db":0,` +
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
	tests := map[string]struct {
		expires time.Time
		want    int64
	}{
		"never":                  {time.Time{}, -1},
		"in 1.5 s":               {noon.Add(1500 * time.Millisecond), 1500},
		"now":                    {noon, 0},
		"1 ms past the deadline": {noon.Add(-time.Millisecond), 0},
		"long past the deadline": {noon.Add(-time.Hour), 0},
	}
	for name, tt := range tests {
		got := TTL(tt.expires, noon)
		check.True(t, got == tt.want, "%s: got %d, want %d", name, got, tt.want)
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
	want := `{"at":"2026-11-20T12:31:07.120Z","event":"renewed","key":"lock:a","format":"set-nx","holder":"token","held_ms":1500,"ttl_ms":10000,"node":"127.0.0.1:6379","db":3}` + "\n"
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
		{keyspace.Lost, []keyspace.Holder{thief}, "lost lock:a by victim, held for 1.5 s, taken by thief, 2 waiting, set-nx", "token-2"},
		{keyspace.Lost, []keyspace.Holder{victim}, "lost lock:a by victim, held for 1.5 s, 2 waiting, set-nx", ""}, // as it was last
		{keyspace.Replaced, []keyspace.Holder{thief}, "replaced lock:a from victim, held for 1.5 s, then thief, 2 waiting, set-nx", "token-2"},
		{keyspace.Released, []keyspace.Holder{thief}, "released lock:a by victim, held for 1.5 s, 2 waiting, set-nx", ""},
	} {
		e := keyspace.Event{
			At: noon, Kind: c.kind, Held: 1500 * time.Millisecond, Holder: victim,
			Lock: keyspace.Lock{Key: "lock:a", Format: "set-nx", Holders: c.after, Waiting: 2},
		}
		got := EventSentence(e, nil, false)
		check.True(t, strings.HasSuffix(got, " "+c.text), "got  %q\nwant %q", got, c.text)
		if got := EventOf(e); got.Holder != "token-1" || got.TakenBy != c.takenBy {
			t.Errorf("%s: %+v", c.kind, got)
		}
	}
}
