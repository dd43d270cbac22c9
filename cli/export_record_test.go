package cli

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/recording"
)

// recordedUntil reads a recording until a condition is met at its end.
func recordedUntil(t *testing.T, dir, what string, ok func(keyspace.Snapshot) bool) {
	t.Helper()
	var last keyspace.Snapshot
	for deadline := time.Now().Add(longestWait); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		r, err := recording.Open(dir)
		if err != nil {
			continue // there is no frame yet
		}
		_, end := r.Span()
		last, err = r.At(end, end.Add(-time.Minute))
		check.NoError(t, errors.Join(err, r.Damage(), r.Close()))
		if ok(last) {
			return
		}
	}
	t.Fatalf("the recording never has %s; its end is %+v", what, last)
}

func isHeld(key string) func(keyspace.Snapshot) bool {
	return func(s keyspace.Snapshot) bool {
		return len(s.Locks) == 1 && s.Locks[0].Key == key && strings.HasPrefix(s.Locks[0].Holders[0].ID, "redacted-")
	}
}

// The exporter is killed, and started again in the same directory.
func TestAnExportRecordsUntilItIsKilled(t *testing.T) {
	testtier.Long(t, "it records for seconds")
	t.Parallel()
	addr := server.ForTest(t).Addr()
	dir := filepath.Join(t.TempDir(), "box")
	send(t, addr, "SET", "lock:a", token, "PX", "60000")
	e := startExport(t, "-u", "redis://"+addr, "--record", dir)
	recordedUntil(t, dir, "lock:a", isHeld("lock:a"))

	second := locktop(t, "export", "--web.listen-address", "127.0.0.1:0", "-u", "redis://"+addr, "--record", dir)
	second.fails(t, exitFailure, "locktop: --record: record in "+dir+": another process records in it\n")

	send(t, addr, "DEL", "lock:a")
	recordedUntil(t, dir, "the end of lock:a", func(s keyspace.Snapshot) bool {
		return len(s.Locks) == 0 && len(s.Events) > 0 && s.Events[len(s.Events)-1].Kind.Ends()
	})
	e.kill()

	send(t, addr, "SET", "lock:b", token, "PX", "60000")
	startExport(t, "-u", "redis://"+addr, "--record", dir)
	recordedUntil(t, dir, "lock:b", isHeld("lock:b"))
	n, err := filepath.Glob(filepath.Join(dir, "*.lockrec"))
	check.True(t, err == nil && len(n) == 2, "the segments are %v, %v", n, err)
}

func TestAnExportThatCannotRecordHasAMetricForIt(t *testing.T) {
	t.Parallel()
	addr := server.ForTest(t).Addr()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	e := startExport(t, "-u", "redis://"+addr, "--record", filepath.Join(file, "box"))
	e.says("stopped: mkdir " + file)
	eventually(t, func() bool { return strings.Contains(e.page(), "\nlocktop_recording_up{") })
	up, recording := e.value("locktop_up"), e.value("locktop_recording_up")
	check.True(t, up == 1 && recording == 0, "locktop_up is %v, locktop_recording_up %v", up, recording)
	e = startExport(t, "-u", "redis://"+addr, "--record", t.TempDir())
	eventually(t, func() bool { return e.value("locktop_recording_up") == 1 })
}

func TestSeveralTargetsHaveRecordingsOfTheirOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"--record", dir}
	addrs := []string{server.ForTest(t).Addr(), server.ForTest(t).Addr()}
	for _, addr := range addrs {
		args = append(args, "-u", "redis://"+addr)
	}
	startExport(t, args...)
	for _, addr := range addrs {
		recordedUntil(t, filepath.Join(dir, dirName("redis://"+addr+"/0")), "a complete scan", func(s keyspace.Snapshot) bool { return s.Complete })
	}
	locktop(t, "replay", dir).fails(t, exitFailure, filepath.Join(dir, dirName("redis://"+addrs[0]+"/0")))
}

func TestSizesAreReadAndPrinted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"1GiB": "1GiB", "500MB": "500MB", "1024 mib": "1GiB", "2000000000": "2GB", "64kib": "64KiB", "7": "7B", "0": "0B"} {
		var s byteSize
		err := s.Set(text)
		check.True(t, err == nil && s.String() == want, "%q is %s, %v, want %s", text, s.String(), err, want)
	}
	for _, text := range []string{"", "GiB", "-1MB", "1.5GiB", "1e9", "9999999999GiB", "1TB"} {
		check.True(t, new(byteSize).Set(text) != nil, "%q is a size", text)
	}
	for _, args := range [][]string{{"--keep", "2h"}, {"--record", "x", "--keep", "5m"}, {"--record", "x", "--keep-size", "1MB"}, {"--record", "x", "--keep-size", "big"}} {
		locktop(t, append([]string{"export"}, args...)...).fails(t, exitUsage)
	}
}
