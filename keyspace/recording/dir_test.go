package recording

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// newDirWriter returns a DirWriter, and the function that returns what it has reported.
func newDirWriter(t *testing.T, dir string, o DirOptions) (*DirWriter, func() string) {
	t.Helper()
	var reports []string
	o.Report = func(text string) { reports = append(reports, text) }
	w := check.Must(NewDirWriter(dir, o))(t)
	t.Cleanup(func() { _ = w.Close() })
	return w, func() string { return strings.Join(reports, "\n") }
}

func openDir(t testing.TB, dir string) *Reader {
	t.Helper()
	r := check.Must(Open(dir))(t)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// recordDir records snapshots in a new directory and returns it.
func recordDir(t *testing.T, all []keyspace.Snapshot) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "box")
	recordIn(t, dir, DirOptions{Tokens: true}, all)
	return dir
}

// recordIn records snapshots in a directory, which must not be reported on.
func recordIn(t *testing.T, dir string, o DirOptions, all []keyspace.Snapshot) {
	t.Helper()
	w, reports := newDirWriter(t, dir, o)
	for _, s := range all {
		w.Add(s)
	}
	err := w.Close()
	check.Require(t, err == nil && reports() == "", "%v, %v", err, reports())
}

// hour returns a snapshot per 4 s of about an hour: three segments, the first two with 300.
// The tests share the snapshots.
var hour = sync.OnceValue(func() []keyspace.Snapshot { return newChurn(1).run(750, 4*time.Second, 12) })

func TestADirectoryHasEverySnapshotToTheSecond(t *testing.T) {
	t.Parallel()
	all := hour()
	r := openDir(t, recordDir(t, all))
	last := len(all) - 1
	if first, end := r.Span(); !first.Equal(all[0].At) || !end.Equal(all[last].At) || len(r.segments) != 3 {
		t.Errorf("%d segments from %v to %v", len(r.segments), first, end)
	}
	for i := range testtier.Size(12, 40, 40) {
		want := all[(i*317)%len(all)] // back and forth
		sameToTheSecond(t, at(t, r, want.At.Add(time.Millisecond), time.Time{}), want)
	}
	var shown time.Time
	for _, want := range all[280:320] { // across the end of a segment
		got := at(t, r, want.At, shown)
		sameToTheSecond(t, got, want)
		if !shown.IsZero() {
			sameEvents(t, got.Events, want)
		}
		shown = want.At
	}
	sameToTheSecond(t, at(t, r, begin.Add(-time.Hour), time.Time{}), all[0])
	sameToTheSecond(t, at(t, r, begin.Add(9*time.Hour), time.Time{}), all[last])
	check.Equal(t, len(at(t, r, all[50].At, time.Time{}).Events), 0, "unrequested events")
	check.ErrorIs(t, r.Damage(), nil)
}

// A snapshot between two frames has its events in the next frame.
func TestNoEventIsLostBetweenFrames(t *testing.T) {
	t.Parallel()
	c := newChurn(3)
	var all []keyspace.Snapshot
	var want keyspace.Snapshot
	for i := range 403 {
		s := c.next(250*time.Millisecond, 12)
		if i > 0 {
			want.Events = append(want.Events, s.Events...)
		}
		all = append(all, s)
	}
	dir := recordDir(t, all)
	file := check.Must(os.ReadFile(segmentsOf(t, dir)[0]))(t)
	n := strings.Count(string(unzip(t, file)), framePrefix)
	check.True(t, n >= 100 && n <= 103, "%d frames in 100 s", n)
	r := openDir(t, dir)
	last := all[len(all)-1]
	got := at(t, r, last.At, all[0].At)
	sameToTheSecond(t, got, last)
	want.Events = slices.DeleteFunc(want.Events, func(e keyspace.Event) bool { return e.Kind == keyspace.Renewed })
	check.Require(t, len(got.Events) == len(want.Events) && len(want.Events) != 0, "%d events, want %d", len(got.Events), len(want.Events))
	for i, e := range want.Events {
		if g := got.Events[i]; g.Kind != e.Kind || !g.At.Equal(e.At) || g.Lock.ID() != e.Lock.ID() || g.Holder.ID != e.Holder.ID {
			t.Fatalf("an event is\n%+v, want\n%+v", g, e)
		}
	}
}

func TestOnlyTheOwnerCanReadADirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such permissions")
	}
	dir := recordDir(t, hour()[:10])
	for _, name := range []string{".", "*"} {
		files, err := filepath.Glob(filepath.Join(dir, name))
		check.Require(t, err == nil && len(files) != 0, "%v, %v", files, err)
		for _, f := range files {
			info, err := os.Stat(f)
			check.True(t, err == nil && info.Mode().Perm()&0o077 == 0, "%s has the permissions %v, %v", f, info.Mode(), err)
		}
	}
}

func TestTokensAreNotRecordedUnasked(t *testing.T) {
	dir, all := t.TempDir(), hour()[:30]
	recordIn(t, dir, DirOptions{}, all)
	r := openDir(t, dir)
	text := fmt.Sprintf("%+v", at(t, r, all[29].At, all[0].At))
	check.True(t, !strings.Contains(text, "s3cret") && strings.Contains(text, "redacted-"), "there are tokens in %.300s", text)
}

func TestOnlyOneWriterUsesADirectory(t *testing.T) {
	dir := t.TempDir()
	w, _ := newDirWriter(t, dir, DirOptions{})
	if _, err := NewDirWriter(dir, DirOptions{}); !errors.Is(err, ErrLocked) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), dir) {
		t.Errorf("the error of a second writer is %v", err)
	}
	check.NoError(t, w.Close())
	newDirWriter(t, dir, DirOptions{})
}

func TestAnotherWriterContinuesTheDirectory(t *testing.T) {
	t.Parallel()
	all := hour()
	dir := recordDir(t, all[:100])
	recordIn(t, dir, DirOptions{Tokens: true}, all[200:300])
	r := openDir(t, dir)
	sameToTheSecond(t, at(t, r, all[50].At, time.Time{}), all[50])
	sameToTheSecond(t, at(t, r, all[250].At, time.Time{}), all[250])
	during := at(t, r, all[150].At, time.Time{})
	sameToTheSecond(t, during, all[99])
	from, until := r.Gap()
	check.True(t, from.Equal(all[99].At) && until.Equal(all[200].At), "while nothing recorded, the gap is from %v to %v", from, until)
	for _, moment := range []time.Time{all[99].At.Add(3 * time.Second), all[200].At, all[299].At, all[50].At} {
		at(t, r, moment, time.Time{})
		from, until := r.Gap()
		check.True(t, from.IsZero() && until.IsZero(), "at %v the gap is from %v to %v", moment, from, until)
	}
}

func TestOldSegmentsAreDeleted(t *testing.T) {
	t.Parallel()
	all := hour()
	dir := t.TempDir()
	foreign := filepath.Join(dir, "mine.lockrec")
	check.NoError(t, os.WriteFile(foreign, []byte("a file of the user"), 0o600))
	w, reports := newDirWriter(t, dir, DirOptions{Keep: 25 * time.Minute})
	for i, s := range all {
		w.Add(s)
		want := 1 + i/300
		if i > 300+25*15 {
			want-- // the first segment ended 25 minutes ago
		}
		got := segmentsOf(t, dir)
		check.Require(t, len(got) == want, "after %d s the segments are %v, want %d", 4*i, got, want)
	}
	_, err := os.Stat(foreign)
	check.True(t, err == nil && reports() == "", "%v, %v", err, reports())
}

// segmentsOf returns the names of the segments in a directory.
func segmentsOf(t *testing.T, dir string) []string {
	t.Helper()
	return check.Must(filepath.Glob(filepath.Join(dir, "2*"+segmentSuffix)))(t)
}

func TestADirectoryIsNeverLargerThanAllowed(t *testing.T) {
	t.Parallel()
	c := newChurn(8)
	dir := t.TempDir()
	const limit = 50 << 10
	w, reports := newDirWriter(t, dir, DirOptions{KeepSize: limit})
	for range 350 {
		w.Add(c.next(time.Second, 60))
		size := int64(0)
		for _, name := range segmentsOf(t, dir) {
			info := check.Must(os.Stat(name))(t)
			size += info.Size()
		}
		check.Require(t, size <= limit, "the segments have %d bytes", size)
	}
	n := strings.Count(reports(), "deleted before their time")
	check.True(t, n == 1, "it reports %d times: %s", n, reports())
	check.NoError(t, w.Close())
	r := openDir(t, dir)
	_, last := r.Span()
	check.True(t, len(r.segments) >= 2 && last.Equal(c.at), "%d segments until %v", len(r.segments), last)
}

// smallDisk is a file on a disk with some bytes left.
type smallDisk struct {
	io.WriteCloser
	left *int
}

func (d smallDisk) Write(b []byte) (int, error) {
	if len(b) > *d.left {
		n, err := d.WriteCloser.Write(b[:*d.left])
		*d.left = 0
		return n, errors.Join(err, syscall.ENOSPC)
	}
	*d.left -= len(b)
	return d.WriteCloser.Write(b)
}

func TestAFullDiskIsReportedOnce(t *testing.T) {
	t.Parallel()
	all := hour()[:500]
	dir := t.TempDir()
	w, reports := newDirWriter(t, dir, DirOptions{Tokens: true})
	left, attempts := 20_000, 0
	w.create = func(name string) (io.WriteCloser, error) {
		attempts++
		f, err := createFile(name)
		return smallDisk{f, &left}, err
	}
	full := 0
	for i, s := range all {
		w.Add(s)
		if left == 0 && full == 0 {
			full = i
		}
		check.Require(t, (w.Err() == nil) == (left > 0) || full != 0 && i >= full+100, "after frame %d the error is %v", i, w.Err())
		if full > 0 && i == full+100 {
			left = 1 << 30
		}
	}
	want := []string{"no space left on device; trying again every 10 s", "continues"}
	if got := strings.Split(reports(), "\n"); full == 0 || len(got) != 2 || !strings.Contains(got[0], want[0]) || !strings.HasSuffix(got[1], want[1]) {
		t.Fatalf("the disk was full after frame %d, and it reports %q", full, got)
	}
	check.NoError(t, errors.Join(w.Err(), w.Close()))
	r := openDir(t, dir)
	for _, i := range []int{full - 2, full + 115, 499} {
		sameToTheSecond(t, at(t, r, all[i].At, time.Time{}), all[i])
	}
	at(t, r, all[full+50].At, time.Time{})
	from, _ := r.Gap()
	check.True(t, !from.IsZero() && r.Damage() == nil, "while the disk was full, the gap begins at %v; %v", from, r.Damage())
	check.True(t, attempts <= 4+400/10, "%d attempts in 400 s", attempts)
	check.AtMost(t, len(segmentsOf(t, dir)), 5, "segments: attempts without a frame are left")
}

func TestRecordingBeginsWhenTheDirectoryIsWritable(t *testing.T) {
	all := hour()
	parent := filepath.Join(t.TempDir(), "parent")
	check.NoError(t, os.WriteFile(parent, nil, 0o600))
	dir := filepath.Join(parent, "box")
	w, reports := newDirWriter(t, dir, DirOptions{Tokens: true})
	for i, s := range all[:60] {
		if i == 30 {
			check.NoError(t, os.Remove(parent))
		}
		w.Add(s)
	}
	err := w.Close()
	check.Require(t, err == nil && strings.Count(reports(), "\n") == 1 && strings.HasSuffix(reports(), "continues"), "%v, %v", err, reports())
	sameToTheSecond(t, at(t, openDir(t, dir), all[59].At, time.Time{}), all[59])
}

func TestADamagedSegmentDoesNotAffectTheOthers(t *testing.T) {
	t.Parallel()
	all := hour()
	whole := os.DirFS(recordDir(t, all))
	for name, damage := range map[string]func([]byte) []byte{
		"a bit in the full state": func(b []byte) []byte { return flipped(b, segmentPrefix+100) },
		"a bit in a frame":        func(b []byte) []byte { return flipped(b, len(b)/2) },
		"zeros":                   func(b []byte) []byte { return make([]byte, len(b)) },
		"cut off in the header":   func(b []byte) []byte { return b[:segmentPrefix-1] }, // by a kill
		"cut off":                 func(b []byte) []byte { return b[:len(b)/2] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			check.NoError(t, os.CopyFS(dir, whole))
			middle := segmentsOf(t, dir)[1]
			text := check.Must(os.ReadFile(middle))(t)
			check.NoError(t, os.WriteFile(middle, damage(text), 0o600))
			r := openDir(t, dir)
			for _, i := range []int{20, 625, 297, 599} {
				got := at(t, r, all[i].At, time.Time{})
				if i == 599 { // at the end of the damaged segment
					named := r.Damage() != nil && strings.Contains(r.Damage().Error(), filepath.Base(middle))
					if _, until := r.Gap(); !until.Equal(all[600].At) || named == strings.HasPrefix(name, "cut off") {
						t.Errorf("after the damage the gap is until %v, and the damage is %v", until, r.Damage())
					}
					continue
				}
				sameToTheSecond(t, got, all[i])
			}
			var shown time.Time
			for _, want := range all[290:625] { // playing goes on after the damage
				got := at(t, r, want.At, shown)
				shown = want.At
				if want.At.After(all[600].At) {
					sameToTheSecond(t, got, want)
				}
			}
		})
	}
}

// A new segment begins when the clock of the server goes back. At such a time the newer
// segment counts.
func TestAClockThatGoesBackIsNoDamage(t *testing.T) {
	first, second := newChurn(12), newChurn(13)
	before := first.run(300, time.Second, 12)
	second.at = first.at.Add(-100 * time.Second)
	all := second.run(50, time.Second, 12)
	r := openDir(t, recordDir(t, slices.Concat(before, all)))
	for _, i := range []int{0, 10, 49} {
		sameToTheSecond(t, at(t, r, all[i].At, time.Time{}), all[i])
	}
	check.ErrorIs(t, r.Damage(), nil)
}

// A caller that adds a snapshot about once per second must not lose every other one.
func TestSnapshotsMayBeALittleEarly(t *testing.T) {
	c := newChurn(16)
	var all []keyspace.Snapshot
	for i := range 100 {
		all = append(all, c.next(time.Second-time.Millisecond+time.Duration(i%3-1)*300*time.Millisecond, 12))
	}
	r := openDir(t, recordDir(t, all))
	for _, want := range all {
		sameToTheSecond(t, at(t, r, want.At, time.Time{}), want)
	}
}

// A frame with all locks of a large server would be too long for a reader.
func TestALargeChangeBeginsASegment(t *testing.T) {
	testtier.Long(t, "it writes 20 MB")
	t.Parallel()
	empty, full := keyspace.Snapshot{At: begin}, keyspace.Snapshot{At: begin.Add(time.Second)}
	for i := range 2_000 {
		l := keyspace.Lock{Key: fmt.Sprintf("lock:%05d", i), Holders: []keyspace.Holder{{ID: "x", Label: strings.Repeat("long ", 2000)}}}
		full.Locks = append(full.Locks, &l)
		full.Events = append(full.Events, keyspace.Event{At: full.At, Kind: keyspace.Acquired, Lock: l, Holder: l.Holders[0]})
	}
	later := full
	later.At, later.Locks = later.At.Add(time.Second), full.Locks[:10]
	later.Events = nil
	r := openDir(t, recordDir(t, []keyspace.Snapshot{empty, full, later}))
	got := at(t, r, full.At, empty.At)
	sameToTheSecond(t, got, full)
	sameEvents(t, got.Events, full)
	sameToTheSecond(t, at(t, r, later.At, full.At), later)
	check.True(t, len(r.segments) == 2 && r.Damage() == nil, "%d segments, %v", len(r.segments), r.Damage())
}

func TestADirectoryWithoutSegmentsIsNoRecording(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", "20260101T000000.000Z.lockrec"} {
		if name != "" {
			check.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("something else"), 0o600))
		}
		_, err := Open(dir)
		check.True(t, errors.Is(err, ErrFormat) && !strings.Contains(err.Error(), "\n"), "%q: %v", name, err)
	}
	_, err := Open(filepath.Join(dir, "missing"))
	check.True(t, errors.Is(err, os.ErrNotExist), "a missing directory: %v", err)
}

// writerEnv is the directory in which TestAKilledWriterLosesOneSecond records as a child.
const writerEnv = "LOCKTOP_TEST_RECORD"

// Between its fork and its exec, a child has the locks of all directories: the test is not parallel.
func TestAKilledWriterLosesOneSecond(t *testing.T) {
	if dir := os.Getenv(writerEnv); dir != "" {
		recordUntilKilled(dir)
		return
	}
	for i := range testtier.Size(2, 5, 5) {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestAKilledWriterLosesOneSecond$")
		child.Env = append(os.Environ(), writerEnv+"="+dir)
		out := check.Must(child.StdoutPipe())(t)
		check.NoError(t, child.Start())
		var written time.Time
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if at, err := time.Parse(time.RFC3339Nano, lines.Text()); err == nil {
				written = at
			}
			if n == 50+77*i {
				check.NoError(t, child.Process.Kill())
			}
		}
		_ = child.Wait() // it was killed
		r := openDir(t, dir)
		if _, last := r.Span(); last.Before(written.Add(-time.Second)) || r.Damage() != nil {
			t.Errorf("the last frame is of %v, the last snapshot of %v, %v", last, written, r.Damage())
		}
	}
}

// recordUntilKilled prints the time of each snapshot that it has added.
func recordUntilKilled(dir string) {
	w, err := NewDirWriter(dir, DirOptions{})
	if err != nil {
		panic(err)
	}
	for c := newChurn(14); ; {
		w.Add(c.next(250*time.Millisecond, 60))
		fmt.Println(c.at.Format(time.RFC3339Nano))
	}
}

func FuzzSegment(f *testing.F) {
	all := newChurn(15).run(8, time.Second, 6)
	file := writeSegment(f, all, nil)
	f.Add(file, true)
	f.Add(file[:len(file)-3], true)
	f.Add(unzip(f, file), false)
	f.Add([]byte(`{"segment":2,"at":"2026-01-01T00:00:00Z","lock_count":1}
{"key":"a","holders":[{}],"expires":"2026-01-01T00:00:00Z","renewed":"2026-01-01T00:00:00Z"}
{"at":"2026-01-01T00:00:00Z","renewed":[[0],[0]],"gone":[0],"locks":[{}],"events":[{"kind":"acquired","before":0,"after":0,"prev_holder_no":1,"holder_no":9}]}
`), false)
	f.Fuzz(func(t *testing.T, file []byte, zipped bool) {
		if zipped {
			fuzzDir(t, file)
			return
		}
		lines := linesOf(strings.NewReader(string(file)))
		lines.unchecked = true
		r, err := newSegmentReader(lines)
		for err == nil {
			_, err = r.step(true)
			_ = r.snapshot()
		}
	})
}

// fuzzDir opens a file as a segment of a directory.
func fuzzDir(t *testing.T, file []byte) {
	name := filepath.Join(t.TempDir(), "a"+segmentSuffix)
	check.NoError(t, os.WriteFile(name, file, 0o600))
	r, err := Open(name)
	if err != nil {
		return
	}
	defer r.Close()
	first, last := r.Span()
	for _, moment := range []time.Time{first, last, first.Add(last.Sub(first) / 2)} {
		_, _ = r.At(moment, first)
	}
}

// The next DirWriter of a directory knows the locks at the end of the recording by the
// tokens that they have now, although the recording has none.
func TestAPastKnowsTheSameHolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "box")
	end := begin.Add(time.Minute)
	lock := func(token, waiter string) keyspace.Lock {
		return keyspace.Lock{Key: "lock:a", Format: "set-nx", Node: "master:6379",
			Holders: []keyspace.Holder{{ID: token, Depth: 1, Since: begin}}, Waiters: []keyspace.Waiter{{ID: waiter, Since: begin}}}
	}
	w, _ := newDirWriter(t, dir, DirOptions{})
	if _, known := w.Past().Lock(lock("one", "secondWaiter"), end); known {
		t.Error("an empty directory has a past")
	}
	w.Add(keyspace.Snapshot{At: end, Locks: []*keyspace.Lock{new(lock("one", "secondWaiter"))}})
	check.NoError(t, w.Close())
	info, err := os.Stat(filepath.Join(dir, saltName))
	check.True(t, err == nil && info.Mode().Perm()&0o077 == 0, "the salt: %v, %v", info, err)

	next, _ := newDirWriter(t, dir, DirOptions{})
	now := lock("one", "another")
	now.Node = "replica:6379"
	was, known := next.Past().Lock(now, end.Add(maxPastAge))
	h, same := was.Holder("one")
	check.True(t, known && same && h.Since.Equal(begin) && was.Node == now.Node, "known %v: %+v", known, was)
	id := was.Waiters[0].ID
	check.True(t, strings.HasPrefix(id, keyspace.RedactedToken), "another waiter has the past of %q", id)
	was, _ = next.Past().Lock(lock("next", ""), end)
	_, same = was.Holder("next")
	check.True(t, !same, "the next holder has the past of the one before")
	for _, at := range []time.Time{end.Add(maxPastAge + 1), end.Add(-1)} {
		_, known := next.Past().Lock(now, at)
		check.True(t, !known, "a past of %v is known at %v", end, at)
	}
	next.Past().Forget()
	_, known = next.Past().Lock(now, end)
	check.True(t, !known, "a forgotten past is known")
}
