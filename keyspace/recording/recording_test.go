package recording

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"locktop/keyspace"
)

var begin = time.Unix(1_700_000_000, 0)

// story returns four snapshots per second, in which locks are acquired, change
// holders and disappear.
func story(span time.Duration, locks int) []keyspace.Snapshot {
	var all []keyspace.Snapshot
	for at := time.Duration(0); at <= span; at += 250 * time.Millisecond {
		s := keyspace.Snapshot{At: begin.Add(at), Complete: true, Server: keyspace.Server{Version: "7.0.15"}, Watch: keyspace.WatchStatus{Mode: keyspace.Push}}
		for i := range locks {
			round := int(at/time.Second+time.Duration(i)) / 7
			if round%3 == 2 {
				continue
			}
			l := keyspace.Lock{Key: fmt.Sprintf("lock:%05d\xff", i), Kind: keyspace.Mutex, Confidence: keyspace.Certain, Expires: begin.Add(time.Duration(round+1) * 7 * time.Second)}
			l.Holders = []keyspace.Holder{{ID: fmt.Sprintf("secret-%d-%d", i, round), Label: "pay", Count: 1, Expires: l.Expires}}
			s.Locks = append(s.Locks, &l)
		}
		if len(all) > 0 {
			s.Events = keyspace.Diff(all[len(all)-1], s)
		}
		all = append(all, s)
	}
	return all
}

func record(t testing.TB, all []keyspace.Snapshot) []byte {
	t.Helper()
	var file bytes.Buffer
	w := NewWriter(&file)
	for _, s := range all {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func open(t testing.TB, file []byte) *Reader {
	t.Helper()
	r, err := Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func at(t testing.TB, r *Reader, moment, since time.Time) keyspace.Snapshot {
	t.Helper()
	s, err := r.At(moment, since)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// same compares two snapshots. Time zones do not matter.
func same(t *testing.T, got, want keyspace.Snapshot) {
	t.Helper()
	if !got.At.Equal(want.At) || len(got.Locks) != len(want.Locks) || got.Server != want.Server {
		t.Fatalf("the snapshot of %v has %d locks, want that of %v with %d", got.At, len(got.Locks), want.At, len(want.Locks))
	}
	if c := keyspace.DeltaOf(got, want); !c.Empty() {
		t.Fatalf("the snapshot of %v differs: %+v", want.At, c)
	}
}

func TestEverySnapshotIsFoundAsItWas(t *testing.T) {
	all := story(65*time.Second, 20)
	r := open(t, record(t, all))
	if first, last := r.Span(); !first.Equal(begin) || !last.Equal(all[len(all)-1].At) || r.Damage() != nil {
		t.Errorf("from %v to %v, %v", first, last, r.Damage())
	}
	for i := range all {
		want := all[(i*37)%len(all)] // back and forth
		same(t, at(t, r, want.At.Add(time.Millisecond), time.Time{}), want)
	}
	same(t, at(t, r, begin.Add(-time.Hour), time.Time{}), all[0])
	same(t, at(t, r, begin.Add(time.Hour), time.Time{}), all[len(all)-1])
}

func TestEventsSinceAMomentAreAllThere(t *testing.T) {
	all := story(45*time.Second, 10)
	r := open(t, record(t, all))
	from, to := begin.Add(3*time.Second), begin.Add(38*time.Second)
	var want []keyspace.Event
	for _, s := range all {
		if s.At.After(from) && !s.At.After(to) {
			want = append(want, s.Events...)
		}
	}
	got := at(t, r, to, from).Events
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Kind != want[i].Kind || got[i].Lock.Key != want[i].Lock.Key || !got[i].At.Equal(want[i].At) {
			t.Fatalf("event %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if n := len(at(t, r, to, time.Time{}).Events); n != 0 {
		t.Errorf("%d unrequested events", n)
	}
}

func TestADamagedFileIsGoodUpToTheDamage(t *testing.T) {
	all := story(60*time.Second, 10)
	file := record(t, all)
	for name, tt := range map[string]struct {
		file []byte
		why  string
	}{
		"cut off":                {file[:len(file)*2/3], "it was cut off"},
		"a byte less":            {file[:len(file)-1], "it was cut off"},
		"garbage":                {append(bytes.Clone(file), "garbage that is longer than the beginning of a block"...), "no block begins there"},
		"a bit":                  {flipped(file, len(file)/2), "its checksum is wrong"},
		"the same once more":     {append(bytes.Clone(file), file...), "its times are out of order"},
		"a block that runs back": {backwards(t, file), "its times are out of order"},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, tt.file)
			if err := r.Damage(); err == nil || !strings.Contains(err.Error(), "damaged at byte") || !strings.HasSuffix(err.Error(), tt.why) {
				t.Errorf("its damage is %v, want that %s", err, tt.why)
			}
			_, last := r.Span()
			if last.Before(begin.Add(15 * time.Second)) {
				t.Errorf("it ends at %v already", last.Sub(begin))
			}
			same(t, at(t, r, begin.Add(5*time.Second), time.Time{}), all[20])
		})
	}
	for _, nothing := range [][]byte{nil, []byte("locktop"), []byte("locktop recording 1\nand so on"), []byte(memberStart), file[:prefixSize+30]} {
		if _, err := Open(bytes.NewReader(nothing), int64(len(nothing))); !errors.Is(err, ErrFormat) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d bytes: %v", len(nothing), err)
		}
	}
}

// backwards returns a recording whose last block has an end time before all
// others.
func backwards(t *testing.T, file []byte) []byte {
	t.Helper()
	file = bytes.Clone(file)
	blocks := open(t, file).blocks
	end := file[blocks[len(blocks)-1].offset-8:]
	binary.BigEndian.PutUint64(end, uint64(begin.UnixNano()))
	return file
}

func flipped(file []byte, i int) []byte {
	file = bytes.Clone(file)
	file[i] ^= 4
	return file
}

func TestARecordingIsGzippedJSONLines(t *testing.T) {
	all := story(25*time.Second, 3)
	zip, err := gzip.NewReader(bytes.NewReader(record(t, all)))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for lines := json.NewDecoder(zip); ; n++ {
		var line struct {
			At    time.Time
			Locks []struct {
				Key        string
				Confidence string
				Holders    []struct {
					Label   string
					Expires time.Time
				}
			}
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !line.At.Equal(all[n].At) {
			t.Fatalf("line %d is of %v, want %v", n+1, line.At, all[n].At)
		}
		if n == 0 && (len(line.Locks) != len(all[0].Locks) || line.Locks[0].Confidence != "certain" || line.Locks[0].Holders[0].Label != "pay" || line.Locks[0].Holders[0].Expires.IsZero()) {
			t.Errorf("the first line has the locks %+v", line.Locks)
		}
	}
	if n != len(all) {
		t.Errorf("%d lines for %d snapshots", n, len(all))
	}
}

func TestEveryFieldIsRecorded(t *testing.T) {
	var want keyspace.Delta
	n := 0
	fill(t, reflect.ValueOf(&want).Elem(), &n)
	member, err := pack([]keyspace.Delta{want})
	if err != nil {
		t.Fatal(err)
	}
	got, err := unpack(member[prefixSize:])
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("got  %+v\nwant %+v", got[0], want)
	}
}

// fill sets every exported field of v that has a name in JSON, and of the values in it, to a distinct
// value.
func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(begin.Add(time.Duration(*n)).UTC()))
	case v.Type() == reflect.TypeFor[keyspace.Confidence]():
		v.Set(reflect.ValueOf(keyspace.Likely))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(t, v.Field(i), n)
			}
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(*n))
	default:
		t.Fatalf("cannot fill a %v", v.Type())
	}
}

func TestANullInsteadOfALockIsAnError(t *testing.T) {
	var packed bytes.Buffer
	zip, _ := flate.NewWriter(&packed, flate.BestSpeed)
	_, _ = zip.Write([]byte(`{"at":"2026-11-20T12:00:00Z","locks":[null]}`))
	_ = zip.Close()
	if block, err := unpack(packed.Bytes()); err == nil || !strings.Contains(err.Error(), "null") {
		t.Errorf("it is %+v, %v", block, err)
	}
}

func TestARecordingOfAnEarlierVersionIsRefusedAsOne(t *testing.T) {
	t.Parallel()
	old := []byte("locktop recording 1\nand whatever follows")
	if _, err := Open(bytes.NewReader(old), int64(len(old))); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "format 1") {
		t.Errorf("the error is %v", err)
	}
}

func TestTextsOfAnyBytesAreKept(t *testing.T) {
	for _, text := range []string{"", "lock:1", "ключ", "a\xffb", "\x00", "\x00bG9jaw==", "\xed\xa0\x80"} {
		if escaped := escapeText(text); !utf8.ValidString(escaped) || unescapeText(escaped) != text {
			t.Errorf("%q becomes %q and %q", text, escaped, unescapeText(escaped))
		}
	}
}

func TestRedactedRecordingsHoldNoTokens(t *testing.T) {
	all := story(15*time.Second, 5)
	r := NewRedactor()
	var clean []keyspace.Snapshot
	for _, s := range all {
		clean = append(clean, r.Redact(s))
	}
	got := open(t, record(t, clean))
	last := at(t, got, begin.Add(15*time.Second), begin)
	text := fmt.Sprintf("%+v", last)
	if strings.Contains(text, "secret") || !strings.Contains(text, "redacted-") || len(last.Events) == 0 {
		t.Errorf("there are secrets in %.300s", text)
	}
	if strings.Contains(fmt.Sprintf("%+v", all), "redacted") {
		t.Error("the original was changed")
	}
	if reflect.DeepEqual(NewRedactor().Redact(all[0]), clean[0]) {
		t.Error("two recordings have the same hashes")
	}
}

func FuzzOpen(f *testing.F) {
	file := record(f, story(12*time.Second, 3))
	f.Add(file)
	f.Add(file[:len(file)-3])
	f.Add([]byte(memberStart))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := Open(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		first, last := r.Span()
		for _, moment := range []time.Time{first, last, first.Add(last.Sub(first) / 2)} {
			_, _ = r.At(moment, first)
		}
	})
}

func BenchmarkSeek10Minutes(b *testing.B) {
	file := record(b, story(11*time.Minute, 200))
	b.ReportMetric(float64(len(file)), "bytes")
	r := open(b, file)
	for b.Loop() {
		at(b, r, begin.Add(10*time.Minute), time.Time{})
		at(b, r, begin, time.Time{})
	}
}
