package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/incident"
)

// deletedByHand returns the events of a hold of a minute whose lock is deleted.
func deletedByHand(key string, at time.Time) []keyspace.Event {
	return oneHold(key, at, time.Minute, keyspace.Deleted)
}

// oneHold returns the events of a hold that ends at a time, after held.
func oneHold(key string, at time.Time, held time.Duration, how keyspace.EventKind) []keyspace.Event {
	l := keyspace.Lock{Key: key, Kind: keyspace.Mutex, Format: "redis-py", Confidence: keyspace.Certain, Expires: at.Add(time.Minute), Node: "10.0.0.5:6379"}
	l.Holders = []keyspace.Holder{{ID: "s3cretS3cret", Label: "worker-7", Depth: 1, Since: at.Add(-held), Expires: l.Expires}}
	return []keyspace.Event{
		{At: at.Add(-held), Kind: keyspace.Acquired, Lock: l, Holder: l.Holders[0]},
		{At: at, Kind: how, Lock: l, Holder: l.Holders[0], Held: held},
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
		out := explained(t, args...)
		check.True(t, strings.Contains(out, says) && strings.Contains(out, "\n  03:12:00  deleted") && !strings.Contains(out, "s3cret"), "explain %q:\n%s", args, out)
	}
	out := explained(t, dir, "--markdown")
	check.True(t, strings.Contains(out, `## job:&lt;b>\|nightly, deleted`) && strings.Contains(out, "| 03:12:00 | deleted"), "the Markdown is\n%s", out)
	page := filepath.Join(t.TempDir(), "story.html")
	explained(t, dir, "--html", page)
	text := string(check.Must(os.ReadFile(page))(t))
	check.True(t, strings.Contains(text, "job:&lt;b&gt;|nightly") && strings.Contains(text, says), "the page is %s", text)
	d := decoded[render.StoryDocument](t, explained(t, dir, "--json"))
	check.True(t, d.StoryCount == 1 && d.Stories[0].Cause == incident.Deleted && d.Stories[0].Key == key, "the document is %+v", d)
	for _, args := range [][]string{{"--at", "03:20", "--for", "2m", dir}, {"lock:a", dir}} {
		out := explained(t, args...)
		check.True(t, strings.HasPrefix(out, "No incident from 2026-11-22 03:"), "explain %q:\n%s", args, out)
	}
	out = explained(t, "lock:a", dir)
	check.True(t, strings.Contains(out, "lock:a: 0 holds ended, redacted-") && strings.Contains(out, " has held it for 30 m 00"), "a lock without an incident:\n%s", out)
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

// A script sees that a part of the night is missing.
func TestACutRecordingIsIncomplete(t *testing.T) {
	t.Parallel()
	dir, begin := t.TempDir(), time.Date(2026, 11, 22, 3, 0, 0, 0, time.Local)
	recordSpan(t, dir, begin, 10*time.Second, 30*time.Minute, deletedByHand("job:a", begin.Add(2*time.Minute))...)
	files := check.Must(filepath.Glob(filepath.Join(dir, "*.lockrec*")))(t)
	whole := check.Must(os.ReadFile(files[0]))(t)
	flush := []byte("\x00\x00\xff\xff") // after each frame
	at := len(whole)*2/3 + bytes.Index(whole[len(whole)*2/3:], flush) + len(flush) + 8
	flipped := slices.Clone(whole)
	flipped[at] ^= 0xff
	for name, text := range map[string][]byte{"cut": whole[:at], "flipped": flipped} {
		file := filepath.Join(t.TempDir(), name+".lockrec")
		check.NoError(t, os.WriteFile(file, text, 0o600))
		says := map[string]string{"cut": "unexpected EOF", "flipped": ""}[name]
		for _, args := range [][]string{{file}, {"nosuch", file}} {
			r := locktop(t, append([]string{"explain"}, args...)...)
			r.says(t, exitFailure, "incomplete: "+file+" is damaged in the segment "+name+".lockrec: "+says)
			check.Contains(t, r.out, "as far as the recording is readable: it is damaged")
		}
		d := decoded[render.StoryDocument](t, locktop(t, "explain", file, "--json").out)
		check.True(t, !d.Complete && len(d.Problems) == 1 && strings.Contains(d.Problems[0], says), "the document is %+v", d)
	}
}
