package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"locktop/keyspace"
)

var begin = time.Unix(1_700_000_000, 0)

// story returns snapshots four times a second, in which locks come, change hands
// and go.
func story(span time.Duration, locks int) []keyspace.Snapshot {
	var all []keyspace.Snapshot
	for at := time.Duration(0); at <= span; at += 250 * time.Millisecond {
		s := keyspace.Snapshot{At: begin.Add(at), Complete: true, Server: keyspace.Server{Version: "7.0.15"}, Follow: keyspace.WatchStatus{Mode: keyspace.Push}}
		for i := range locks {
			round := int(at/time.Second+time.Duration(i)) / 7
			if round%3 == 2 {
				continue
			}
			l := keyspace.Lock{Key: fmt.Sprintf("lock:%05d\xff", i), Kind: keyspace.Mutex, Expires: begin.Add(time.Duration(round+1) * 7 * time.Second)}
			l.Holders = []keyspace.Holder{{ID: fmt.Sprintf("secret-%d-%d", i, round), Label: "pay", Count: 1, Expires: l.Expires}}
			s.Locks = append(s.Locks, l)
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

// same holds two snapshots against each other, whatever zone their times are in.
func same(t *testing.T, got, want keyspace.Snapshot) {
	t.Helper()
	if !got.At.Equal(want.At) || len(got.Locks) != len(want.Locks) || got.Server != want.Server {
		t.Fatalf("the picture of %v has %d locks, want that of %v with %d", got.At, len(got.Locks), want.At, len(want.Locks))
	}
	if c := keyspace.DeltaOf(got, want); !c.Empty() {
		t.Fatalf("the picture of %v differs: %+v", want.At, c)
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
		t.Errorf("%d events that nobody asked for", n)
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
		"garbage":                {append(bytes.Clone(file), "garbage that is long enough for a header"...), "it was cut off"},
		"a bit":                  {flipped(file, len(file)/2), "its checksum is wrong"},
		"the same once more":     {append(bytes.Clone(file), file[len(magic):]...), "its times are out of order"},
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
	for _, nothing := range [][]byte{nil, []byte("locktop"), []byte("locktop recording 2\n"), []byte(magic), file[:len(magic)+30]} {
		if _, err := Open(bytes.NewReader(nothing), int64(len(nothing))); !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: %v", len(nothing), err)
		}
	}
}

// backwards is a recording whose last block claims to end before all others.
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
	f.Add([]byte(magic))
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
