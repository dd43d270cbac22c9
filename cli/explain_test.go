package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/keyspace/recording"
)

// deletedByHand returns the events of a hold of a minute whose lock is deleted.
func deletedByHand(key string, at time.Time) []keyspace.Event {
	l := keyspace.Lock{Key: key, Kind: keyspace.Mutex, Format: "redis-py", Confidence: keyspace.Certain, Expires: at.Add(time.Minute), Node: "10.0.0.5:6379"}
	l.Holders = []keyspace.Holder{{ID: "secret", Label: "worker-7", Depth: 1, Since: at.Add(-time.Minute), Expires: l.Expires}}
	return []keyspace.Event{
		{At: at.Add(-time.Minute), Kind: keyspace.Acquired, Lock: l, Holder: l.Holders[0]},
		{At: at, Kind: keyspace.Deleted, Lock: l, Holder: l.Holders[0], Held: time.Minute},
	}
}

// explained runs explain and returns its output.
func explained(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, append([]string{"explain"}, args...)...)
}

func TestExplainHasOneStoryInFourForms(t *testing.T) {
	t.Parallel()
	dir, begin := t.TempDir(), time.Date(2026, 11, 22, 3, 0, 0, 0, time.Local)
	const key = "job:<b>|nightly"
	recordSpan(t, dir, begin, 10*time.Second, 30*time.Minute, deletedByHand(key, begin.Add(12*time.Minute))...)
	says := "while worker-7 held it"
	for _, args := range [][]string{{dir}, {dir, "--at", "03:12"}, {key, dir}, {"--key-b64", "am9iOjxiPnxuaWdodGx5", dir}, {key, dir, "--at", "03:12", "--for", "3m"}} {
		if out := explained(t, args...); !strings.Contains(out, says) || !strings.Contains(out, "\n  03:12:00  deleted") || strings.Contains(out, "secret") {
			t.Errorf("explain %q:\n%s", args, out)
		}
	}
	if out := explained(t, dir, "--markdown"); !strings.Contains(out, `## job:&lt;b>\|nightly, deleted`) || !strings.Contains(out, "| 03:12:00 | deleted") {
		t.Errorf("the Markdown is\n%s", out)
	}
	page := filepath.Join(t.TempDir(), "story.html")
	explained(t, dir, "--html", page)
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "job:&lt;b&gt;|nightly") || !strings.Contains(string(text), says) {
		t.Errorf("the page is %s%v", text, err)
	}
	d := decoded[render.StoryDocument](t, explained(t, dir, "--json"))
	check.True(t, d.StoryCount == 1 && d.Stories[0].Cause == incident.Deleted && d.Stories[0].Key == key, "the document is %+v", d)
	for _, args := range [][]string{{"--at", "03:20", "--for", "2m", dir}, {"lock:a", dir}} {
		out := explained(t, args...)
		check.True(t, strings.HasPrefix(out, "No incident from 2026-11-22 03:"), "explain %q:\n%s", args, out)
	}
	if out := explained(t, "lock:a", dir); !strings.Contains(out, "lock:a: 0 holds ended, redacted-") || !strings.Contains(out, " has held it for 30 m 00") {
		t.Errorf("a lock without an incident:\n%s", out)
	}
}

func TestWhatCannotBeExplainedIsOneLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recordSpan(t, dir, time.Date(2026, 11, 22, 3, 0, 0, 0, time.Local), 10*time.Second, time.Minute)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"nosuch", dir}, exitNoLock, `the recording has no lock "nosuch" from 2026-11-22 03:00:00`},
		{[]string{dir, "--at", "04:00"}, exitUsage, "is not in the recording"},
		{[]string{dir, "--at", "noon"}, exitUsage, "a time is like"},
		{[]string{dir, "--json", "--markdown"}, exitUsage, "exclude each other"},
		{[]string{dir, "--for", "-1h"}, exitUsage, "must not be negative"},
		{[]string{"a", "b", "c"}, exitUsage, "a key and a file or directory"},
		{[]string{"a", "--key-b64", "YQ", dir}, exitUsage, "a key and a file or directory"},
		{[]string{"a", filepath.Join(dir, "nosuch")}, exitFailure, "no such file"},
		{[]string{"nosuch.lockrec"}, exitFailure, "open nosuch.lockrec: "},
		{[]string{"a", t.TempDir()}, exitFailure, "not a recording"},
		{[]string{dir, "--html", filepath.Join(dir, "no", "such")}, exitFailure, "write the page"},
	} {
		locktop(t, append([]string{"explain"}, tt.args...)...).fails(t, tt.code, tt.want)
	}
}

// A lock is known with the indexes, too, if it did not change in the time that is explained, or was never held.
func TestAnIndexHasTheLocksThatNobodyHeld(t *testing.T) {
	dir, begin := t.TempDir(), time.Date(2026, 11, 22, 0, 0, 0, 0, time.Local)
	w := check.Must(recording.NewDirWriter(dir, recording.DirOptions{Index: func() recording.Indexer { return incident.NewIndexer() }}))(t)
	held := &keyspace.Lock{Key: "lock:held", Format: "redis-py", Kind: keyspace.Mutex, Node: "10.0.0.5:6379", Holders: []keyspace.Holder{{ID: "secret", Label: "worker-7", Depth: 1, Since: begin}}}
	free := func(key string) *keyspace.Lock {
		return &keyspace.Lock{Key: key, Format: "locktop-semaphore", Kind: keyspace.Semaphore, Limit: 2, Node: "10.0.0.5:6379"}
	}
	for minute := range 100 {
		s := keyspace.Snapshot{At: begin.Add(time.Duration(minute) * time.Minute), Complete: true}
		if 30 <= minute && minute < 35 || 55 <= minute && minute < 65 { // the second is in two segments
			s.Locks = append(s.Locks, free("lock:brief"))
		}
		s.Locks = append(s.Locks, free("lock:free"), held)
		w.Add(s)
	}
	check.NoError(t, w.Close())
	indexes, _ := filepath.Glob(filepath.Join(dir, "*.index"))
	check.Require(t, len(indexes) >= 3, "there are only %d indexes", len(indexes))
	for _, key := range []string{"lock:held", "lock:free", "lock:brief"} {
		for _, at := range [][]string{{"--at", "00:32", "--for", "1h"}, {"--at", "00:50", "--for", "50m"}, {"--at", "00:55", "--for", "2h"}} {
			out := explained(t, append([]string{key, dir}, at...)...)
			check.True(t, strings.HasPrefix(out, "No incident from ") && strings.Contains(out, key+": 0 holds ended"),
				"explain %s %q says %s", key, at, out)
		}
	}
}
