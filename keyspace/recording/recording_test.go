package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"locktop/internal/check"
	"locktop/keyspace"
)

var begin = time.Unix(1_700_000_000, 0)

// quarters returns four snapshots per second of a span.
func quarters(seed uint64, span time.Duration, locks int) []keyspace.Snapshot {
	return newChurn(seed).run(1+int(4*span/time.Second), time.Second/4, locks)
}

func record(t testing.TB, all []keyspace.Snapshot) []byte {
	t.Helper()
	var file bytes.Buffer
	w := NewWriter(&file, false)
	for _, s := range all {
		check.NoError(t, w.Add(s))
	}
	check.NoError(t, w.Close())
	return file.Bytes()
}

func open(t testing.TB, file []byte) *Reader {
	t.Helper()
	name := filepath.Join(t.TempDir(), "a.lockrec")
	check.NoError(t, os.WriteFile(name, file, 0o600))
	return openDir(t, name)
}

func at(t testing.TB, r *Reader, moment, since time.Time) keyspace.Snapshot {
	t.Helper()
	return check.Must(r.At(moment, since))(t)
}

// same compares two snapshots. Time zones do not matter.
func same(t *testing.T, got, want keyspace.Snapshot) {
	t.Helper()
	check.Require(t, got.At.Equal(want.At) && len(got.Locks) == len(want.Locks) && got.Server == want.Server,
		"the snapshot of %v has %d locks, want that of %v with %d", got.At, len(got.Locks), want.At, len(want.Locks))
	c := keyspace.DeltaOf(got, want)
	check.Require(t, c.Empty(), "the snapshot of %v differs: %+v", want.At, c)
}

func TestEverySnapshotIsFoundAsItWas(t *testing.T) {
	t.Parallel()
	all := quarters(1, 65*time.Second, 20)
	r := open(t, record(t, all))
	first, last := r.Span()
	check.True(t, first.Equal(all[0].At) && last.Equal(all[len(all)-1].At) && r.Damage() == nil, "from %v to %v, %v", first, last, r.Damage())
	for i := range all {
		want := all[(i*37)%len(all)] // back and forth
		same(t, at(t, r, want.At.Add(time.Millisecond), time.Time{}), want)
	}
	same(t, at(t, r, begin.Add(-time.Hour), time.Time{}), all[0])
	same(t, at(t, r, begin.Add(time.Hour), time.Time{}), all[len(all)-1])
}

// A file has a segment per 30 s. Damage costs the rest of its segment.
func TestADamagedFileLosesTheRestOfASegment(t *testing.T) {
	t.Parallel()
	all := quarters(2, 200*time.Second, 10)
	file := record(t, all)
	second := bytes.Index(file[1:], []byte(memberStart)) + 1
	for name, tt := range map[string]struct {
		file     []byte
		lost, to int // seconds
		damaged  bool
	}{
		"cut off":       {file[:len(file)*2/3], 120, 200, true},
		"a byte less":   {file[:len(file)-1], 200, 200, true},
		"a full state":  {file[:second+60], 30, 200, true},
		"written":       {file[:bytes.LastIndex(file, []byte("\x00\x00\xff\xff"))+4], 200, 200, false},
		"garbage":       {append(bytes.Clone(file), "garbage that is longer than the beginning of a segment"...), 200, 200, false},
		"a bit":         {flipped(file, second*3/2), 40, 60, true},
		"the beginning": {flipped(file, second), 30, 60, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, tt.file)
			for i := 0; i < len(all); i += 50 {
				if s := i / 4; s < tt.lost || s >= tt.to && tt.to < 200 {
					same(t, at(t, r, all[i].At, time.Time{}), all[i])
				}
			}
			at(t, r, begin.Add(58*time.Second), time.Time{})
			err := r.Damage()
			check.True(t, (err != nil) == tt.damaged, "its damage is %v", err)
		})
	}
	for _, nothing := range [][]byte{nil, []byte("locktop"), []byte(memberStart), file[:segmentPrefix+30], bytes.Repeat([]byte("a"), 1000)} {
		name := filepath.Join(t.TempDir(), "nothing")
		check.NoError(t, os.WriteFile(name, nothing, 0o600))
		_, err := Open(name)
		check.True(t, errors.Is(err, ErrFormat) && !strings.Contains(err.Error(), "\n"), "%d bytes: %v", len(nothing), err)
	}
}

func flipped(file []byte, i int) []byte {
	file = bytes.Clone(file)
	file[i] ^= 4
	return file
}

func TestARecordingIsGzippedJSONLines(t *testing.T) {
	all := quarters(3, 125*time.Second, 3)
	lines := json.NewDecoder(bytes.NewReader(unzip(t, record(t, all))))
	frames, states := 0, 0
	for {
		var line struct {
			At         *time.Time
			Segment    int
			Key        string
			Confidence string
			Holders    []struct{ Label string }
		}
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case line.Segment > 0:
			states++
		case line.At != nil:
			frames++
		case line.Key == "" || line.Confidence != "certain" || line.Holders[0].Label != escapeText("pay\xff"):
			t.Errorf("a lock is %+v", line)
		}
	}
	check.True(t, states == 5 && frames == len(all)+states-1, "%d frames in %d segments, for %d snapshots", frames, states, len(all))
}

// A file has what a directory only counts: each renewal, and the exact deadline after it.
func TestAFileHasEveryRenewal(t *testing.T) {
	t.Parallel()
	all := newChurn(7).run(60, time.Second, 60)
	r := open(t, record(t, all))
	var shown time.Time
	renewals := 0
	for _, want := range all {
		got := at(t, r, want.At, shown)
		shown = want.At
		same(t, got, want)
		if want.At.Equal(all[0].At) {
			continue // without a time before it, no events are wanted
		}
		check.Require(t, len(got.Events) == len(want.Events), "%d events, want %d", len(got.Events), len(want.Events))
		for i, e := range want.Events {
			if g := got.Events[i]; g.Kind != e.Kind || g.Lock.Key != e.Lock.Key || !keyspace.SameLock(&g.Lock, &e.Lock) {
				t.Fatalf("event %d is\n%+v, want\n%+v", i, g, e)
			}
			if e.Kind == keyspace.Renewed {
				renewals++
			}
		}
	}
	check.True(t, renewals != 0, "no renewal was recorded")
}

// A walk that ends before the recording leaves no goroutine that reads: synctest waits for all. The state after it is right.
func TestAWalkEndsItsReading(t *testing.T) {
	all := quarters(4, time.Minute, 5)
	file := record(t, all)
	synctest.Test(t, func(t *testing.T) {
		r := open(t, file)
		check.NoError(t, r.Walk(all[0].At, all[9].At, visitor(func(keyspace.Delta, bool) {}), nil))
		same(t, at(t, r, all[30].At, time.Time{}), all[30])
	})
}

func TestTextsOfAnyBytesAreKept(t *testing.T) {
	for _, text := range []string{"", "lock:1", "ключ", "a\xffb", "\x00", "\x00bG9jaw==", "\xed\xa0\x80"} {
		escaped := escapeText(text)
		check.True(t, utf8.ValidString(escaped) && unescapeText(escaped) == text, "%q becomes %q and %q", text, escaped, unescapeText(escaped))
	}
}

// Any other text, such as the error of a server, is shown as a screen would, and does not stop the recording.
func TestATextThatIsNotUTF8StopsNoRecording(t *testing.T) {
	all := quarters(4, time.Minute, 5)[:3]
	all[2].Notices, all[2].Problems = []keyspace.Notice{{At: all[2].At, Text: "a\xffb"}}, []string{"\xed\xa0\x80"}
	got := at(t, open(t, record(t, all)), all[2].At, time.Time{})
	check.True(t, got.At.Equal(all[2].At) && len(got.Problems) == 1 && utf8.ValidString(got.Problems[0]), "it is %v", got.Problems)
}

func TestOnlyTheSecretPartsOfTokensAreHidden(t *testing.T) {
	r := newRedactor()
	const id = "0b5cf8d2-9a4e-4c1b-8f3a-2d7e6c5b4a39"
	for token, want := range map[string]string{
		"vm:4465:" + id: "vm:4465:*", id + ":17": "*:17", "ADDED:2026@web-2.shop.internal": "ADDED:2026@web-2.shop.internal", "svc-a:101": "svc-a:101", "1": "1",
		"web-7d9f8b6c5-x2k4q:1:" + id: "web-7d9f8b6c5-x2k4q:1:*", "10.0.3.17:4465|" + id: "10.0.3.17:4465|*",
		id: "*", "qL3xN0b2Zf8dYw5tK0001Q==": "*", "k3v9q1sess": "*", "qwertzui": "*", "823645978123": "*", "V1StGXR8_Z5jdHi6B-myT": "*", "01JD3P0V7T9R4W5X6Y7Z8A9B0C": "*",
	} {
		got := r.hash(token)
		hidden := regexp.MustCompile(`redacted-[0-9a-f]{12}`).ReplaceAllString(got, "*")
		check.True(t, hidden == want && got == r.hash(token), "%s is recorded as %s", token, got)
	}
}

// A field of a lock that is new is no secret only if it is named here.
func TestOnlyNamesStayInARedactedLock(t *testing.T) {
	names := []string{"Key", "Format", "Kind", "Node", "Label", "Mode", "Addr", "Why"}
	var l keyspace.Lock
	n := 0
	check.Fill(reflect.ValueOf(&l).Elem(), &n)
	texts := make(map[string]string) // names of fields by text
	var secrets func(name string, v reflect.Value)
	secrets = func(name string, v reflect.Value) {
		switch {
		case v.Kind() == reflect.String && v.CanSet():
			text := fmt.Sprintf("s3cret%04d0a1b2c3d4e5f60718", len(texts))
			texts[text] = name
			v.SetString(text)
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				secrets(v.Type().Field(i).Name, v.Field(i))
			}
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				secrets(name, v.Index(i))
			}
		}
	}
	secrets("", reflect.ValueOf(&l).Elem())
	var file bytes.Buffer
	w := NewWriter(&file, true)
	check.NoError(t, w.Add(keyspace.Snapshot{At: time.Unix(1_700_000_000, 0), Locks: []*keyspace.Lock{&l}}))
	check.NoError(t, w.Close())
	recorded := string(unzip(t, file.Bytes()))
	for text, name := range texts {
		check.True(t, strings.Contains(recorded, text) == slices.Contains(names, name), "%s, as %s, in %s", name, text, recorded)
	}
}

func TestRedactedRecordingsHoldNoTokens(t *testing.T) {
	var texts []string
	for range 2 {
		var file bytes.Buffer
		w := NewWriter(&file, true)
		for _, s := range quarters(5, 15*time.Second, 5) {
			for _, l := range s.Locks {
				l.Evidence = []string{"its token is secret-1"}
			}
			check.NoError(t, w.Add(s))
		}
		check.NoError(t, w.Close())
		texts = append(texts, string(unzip(t, file.Bytes())))
	}
	check.True(t, !strings.Contains(texts[0], "s3cret") && strings.Contains(texts[0], "redacted-"), "there are secrets in %.300s", texts[0])
	check.True(t, texts[0] != texts[1], "two recordings have the same hashes")
}
