package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"locktop/cli/connect"
	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/keyspace/metrics"
	"locktop/keyspace/recording"
)

// exported is a running `locktop export` in a process of its own.
type exported struct {
	*spawned
	base string // http://host:port
}

// startExport starts an export on a free port and waits until it listens.
func startExport(t *testing.T, args ...string) *exported {
	t.Helper()
	return startExportIn(t, nil, args...)
}

// startExportIn starts an export in an environment; nil is that of the test.
func startExportIn(t *testing.T, env []string, args ...string) *exported {
	t.Helper()
	s := spawnIn(t, env, append([]string{"export", "--web.listen-address", "127.0.0.1:0"}, args...)...)
	s.says("serving ")
	address := regexp.MustCompile(`serving (https?://\S+)/metrics`).FindStringSubmatch(s.errs.String())
	return &exported{s, address[1]}
}

// startReadyExport starts an export and waits for its first complete scan.
func startReadyExport(t *testing.T, args ...string) *exported {
	t.Helper()
	e := startExport(t, args...)
	within(t, longestWait, func() bool {
		status, _ := e.get("/readyz")
		return status == http.StatusOK
	})
	return e
}

// page returns the metrics.
func (e *exported) page() string {
	e.t.Helper()
	status, text := e.get("/metrics")
	check.Require(e.t, status == http.StatusOK, "/metrics: %d %s", status, text)
	return text
}

// get returns the status and the text of a page.
func (e *exported) get(path string) (int, string) {
	e.t.Helper()
	return fetch(e.t, e.base+path)
}

// fetch returns the status and the text of a page of a server.
func fetch(t *testing.T, address string) (int, string) {
	t.Helper()
	resp := check.Must(http.Get(address))(t)
	defer resp.Body.Close()
	check.True(t, resp.Uncompressed || !strings.HasSuffix(address, "/metrics") || resp.StatusCode != http.StatusOK, "%s is not compressed", address)
	body := check.Must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(body)
}

// sees waits until a line of the metrics matches.
func (e *exported) sees(pattern string) {
	e.t.Helper()
	line := regexp.MustCompile("(?m)^" + pattern + "$")
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		page := e.page()
		if line.MatchString(page) {
			return
		}
		check.Require(e.t, time.Since(began) <= longestWait, "no line like %s in\n%s", pattern, page)
	}
}

func TestExportServesTheLocksOfItsTargets(t *testing.T) {
	t.Parallel()
	one, two := servertest.RedisForTest(t), servertest.RedisForTest(t)
	send(t, one.Addr(), "SET", "lock:a", token, "PX", "60000")
	send(t, two.Addr(), "SET", "lock:order:4711", token)
	text := filepath.Join(t.TempDir(), "locktop.prom")
	e := startExport(t, "-u", "redis://:@"+one.Addr()+"/0", "-u", "redis://"+two.Addr(), "--lock-metric", "lock:a", "--classes", "--every", "100ms", "--textfile", text)
	first, second := `target="redis://`+one.Addr()+`/0"`, `target="redis://`+two.Addr()+`/0"`
	e.sees(`locktop_locks\{` + first + `,db="0",format="set-nx",state="held"\} 1`)
	e.sees(`locktop_lock_held\{` + first + `,db="0",lock="lock:a"\} 1`)
	e.sees(`locktop_findings\{` + second + `,db="0",class="lock:order:\*",finding="never-expires",severity="critical"\} 1`)
	e.sees(`locktop_class_locks\{` + second + `,db="0",class="lock:order:\*"\} 1`)
	send(t, one.Addr(), "DEL", "lock:a")
	e.sees(`locktop_events_total\{` + first + `,db="0",format="set-nx",event="released"\} 1`)
	e.sees(`locktop_lock_held\{` + first + `,db="0",lock="lock:a"\} 0`)
	e.sees(`locktop_build_info\{version=".+",goversion="go.+"\} 1`)
	e.sees(`(process_resident_memory_bytes [1-9]\d{6,}|go_goroutines [1-9]\d*)`)
	within(t, longestWait, func() bool { // the first scan of a busy server takes longer than the first lock
		got, _ := e.get("/readyz")
		return got == 200
	})
	for path, status := range map[string]int{"/healthz": 200, "/": 200, "/favicon.ico": 404} {
		got, body := e.get(path)
		check.True(t, got == status, "%s: %d %s, want %d", path, got, body, status)
	}
	within(t, longestWait, func() bool {
		page, _ := os.ReadFile(text)
		return strings.Contains(string(page), "locktop_up{"+first+"} 1\n")
	})
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(text), ".*"))
	check.True(t, len(left) == 0, "left behind: %q", left)
	_ = two.Kill()
	e.sees(`locktop_up\{` + second + `\} 0`)
	e.sees(`locktop_up\{` + first + `\} 1`)
	e.signal(syscall.SIGTERM)
	e.exits(exitFine)
}

func TestExportWaitsForATarget(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t)
	addr := child.Addr()
	check.NoError(t, child.Kill())
	e := startExport(t, "-u", "redis://"+addr, "--every", "100ms")
	e.sees(`locktop_up\{target="redis://` + addr + `/0"\} 0`)
	status, _ := e.get("/readyz")
	check.True(t, status == 200, "not ready: %d", status)
	check.NoError(t, child.Restart(t.Context()))
	e.sees(`locktop_up\{target="redis://` + addr + `/0"\} 1`)
	e.says("answers after")
	n := strings.Count(e.errs.String(), "cannot be read")
	check.True(t, n == 1, "%d lines say that it cannot be read", n)
}

func TestExportReadsItsWebConfigurationAgain(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "web.yml")
	write(t, config, "")
	e := startExport(t, "-u", "redis://"+servertest.RedisForTest(t).Addr(), "--web.config.file", config)
	e.signal(syscall.SIGHUP)
	e.says("read the web configuration again")
	write(t, config, "basic_auth_users: {ann: no-hash}\n")
	e.signal(syscall.SIGHUP)
	e.says("the old web configuration stays")
	status, _ := e.get("/metrics")
	check.True(t, status == 200, "status %d", status)
}

func TestExportRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	many := []string{}
	for i := range 51 {
		many = append(many, "--lock-metric", "lock:"+strings.Repeat("x", i+1))
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"two names for one target": {[]string{"-u", "redis://127.0.0.1:1", "-u", "redis://:x@127.0.0.1:1/0"}, exitUsage, "is named twice"},
		"a wrong address":          {[]string{"-u", "http://127.0.0.1:1"}, exitUsage, "--url"},
		"an unknown context":       {[]string{"--context", "absent"}, exitUsage, "--context"},
		"a URL and a host":         {[]string{"-u", "redis://127.0.0.1:1", "-H", "127.0.0.1"}, exitUsage, "--url"},
		"too many locks":           {many, exitUsage, "51 locks; at most 50"},
		"a lock that is no text":   {[]string{"--lock-metric", "\xff"}, exitUsage, "UTF-8"},
		"no way to read":           {[]string{"--web.listen-address", "none"}, exitUsage, "--textfile"},
		"a web configuration":      {[]string{"--web.config.file", "absent.yml"}, exitUsage, "--web.config.file"},
		"too often":                {[]string{"--every", "1ms"}, exitUsage, "--every"},
		"an address of others":     {[]string{"--web.listen-address", "127.0.0.1:http:x"}, exitUsage, "--web.listen-address"},
		"one directory for two":    {[]string{"-u", "redis://127.0.0.1:1", "-u", "rediss://127.0.0.1:1", "--record", t.TempDir()}, exitUsage, "redis://127.0.0.1:1/0 and rediss://127.0.0.1:1/0 would have the same directory"},
		"findings only":            {[]string{"--stuck"}, exitUsage, "unknown flag --stuck"},
	} {
		t.Run(name, func(t *testing.T) { locktop(t, append([]string{"export"}, c.args...)...).fails(t, c.code, c.says) })
	}
}

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

func TestAnExportThatCannotRecordHasAMetricForIt(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
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
	addrs := []string{servertest.RedisForTest(t).Addr(), servertest.RedisForTest(t).Addr()}
	for _, addr := range addrs {
		args = append(args, "-u", "redis://"+addr)
	}
	startExport(t, args...)
	for _, addr := range addrs {
		recordedUntil(t, filepath.Join(dir, dirName("redis://"+addr+"/0")), "a complete scan", func(s keyspace.Snapshot) bool { return s.Complete })
	}
	locktop(t, "replay", dir).fails(t, exitFailure, filepath.Join(dir, dirName("redis://"+addrs[0]+"/0")))
	locktop(t, append([]string{"export", "--web.listen-address", "127.0.0.1:0"}, args...)...).fails(t, exitFailure, "locktop: --record: record in "+dir, ": another process records in it\n")
}

func TestSizesAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]byteSize{"1GiB": 1 << 30, "500MB": 5e8, "1024 mib": 1 << 30, "2000000000": 2e9, "64kib": 1 << 16, "7": 7, "0": 0} {
		var s byteSize
		err := s.Set(text)
		check.True(t, err == nil && s == want, "%q is %d, %v, want %d", text, s, err, want)
	}
	for _, text := range []string{"", "GiB", "-1MB", "1.5GiB", "1e9", "9999999999GiB", "1TB"} {
		check.True(t, new(byteSize).Set(text) != nil, "%q is a size", text)
	}
	for _, args := range [][]string{{"--keep", "2h"}, {"--record", "x", "--keep", "5m"}, {"--record", "x", "--keep-size", "1MB"}, {"--record", "x", "--keep-size", "big"}} {
		locktop(t, append([]string{"export"}, args...)...).fails(t, exitUsage)
	}
}

func TestTheReasonsWhyATargetIsDown(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	for want, errs := range map[metrics.DownReason][]error{
		metrics.Resolution:     {dial(&net.DNSError{Name: "x", IsNotFound: true}), dial(&net.DNSError{Name: "x", IsTimeout: true})},
		metrics.Unreachable:    {dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), dial(syscall.ENETUNREACH)},
		metrics.ConnectTimeout: {dial(os.ErrDeadlineExceeded), dial(os.NewSyscallError("connect", syscall.ETIMEDOUT))},
		metrics.Refused:        {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), dial(syscall.ENOENT)},
		metrics.ReplyTimeout:   {read(os.ErrDeadlineExceeded), context.DeadlineExceeded},
		metrics.Closed:         {io.EOF, read(syscall.ECONNRESET), net.ErrClosed},
		metrics.TLS:            {tls.RecordHeaderError{Msg: "x"}, &tls.CertificateVerificationError{Err: errors.New("x")}, &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}},
		metrics.OtherReason:    {errors.New("x")},
	} {
		for _, err := range errs {
			err = fmt.Errorf("read: %w", err)
			for _, err := range []error{err, inspect.ServerErrors{err, errors.New("another")}} {
				got := downReason(err)
				check.True(t, got == want, "%v: %s, want %s", err, got, want)
			}
		}
	}
}

// reasonIs waits until the target is down for a reason, and only for that one.
func (e *exported) reasonIs(why metrics.DownReason) {
	e.t.Helper()
	e.sees(`locktop_down_reason\{target=".*",reason="` + string(why) + `"\} 1`)
	n := len(regexp.MustCompile(`(?m)^locktop_down_reason\{.*\} 1$`).FindAllString(e.page(), -1))
	check.True(e.t, n == 1, "%d reasons", n)
}

// An export tells a server that hangs from one that has ended, and says how old its metrics are. It reads the locks
// soon after the server answers again: before, it paused for 20 times the stall.
func TestAnExportTellsWhyATargetIsDownAndReturnsAfterAStall(t *testing.T) {
	long(t, "a target stands still for seconds")
	child := servertest.RedisForTest(t)
	send(t, child.Addr(), "SET", "lock:a", token, "PX", "600000")
	e := startReadyExport(t, "-u", "redis://"+child.Addr(), "--every", "100ms", "--timeout", "1s")
	e.sees(`locktop_locks\{.*,state="held"\} 1`)
	if strings.Contains(e.page(), `"} 1`+"\n# HELP locktop_last_answer") || !strings.Contains(e.page(), `reason="refused"} 0`) {
		t.Errorf("a target that is up has a reason:\n%s", e.page())
	}
	frozen := time.Now()
	check.NoError(t, child.Freeze())
	e.sees(`locktop_up\{.*\} 0`)
	e.reasonIs(metrics.ReplyTimeout)
	if age := time.Since(e.time("locktop_last_answer_timestamp_seconds")); age < time.Since(frozen)-time.Second || age > time.Since(frozen)+10*time.Second {
		t.Errorf("%v after the begin of the stall, the last answer is %v old", time.Since(frozen), age)
	}
	check.NoError(t, child.Continue())
	back := time.Now()
	send(t, child.Addr(), "SET", "lock:b", token, "PX", "600000")
	e.sees(`locktop_locks\{.*,state="held"\} 2`)
	took := time.Since(back)
	check.True(t, !testtier.Proving() || took <= 15*time.Second, "the export read the locks %v after the end of the stall", took)
	e.says("answers after")
	check.NoError(t, child.Kill())
	e.reasonIs(metrics.Refused)
}

// time returns the value of a metric as a time.
func (e *exported) time(metric string) time.Time {
	e.t.Helper()
	value := regexp.MustCompile(`(?m)^` + metric + `\{.*\} (\S+)$`).FindStringSubmatch(e.page())
	check.Require(e.t, value != nil, "no %s", metric)
	seconds := check.Must(strconv.ParseFloat(value[1], 64))(e.t)
	return time.UnixMilli(int64(seconds * 1000))
}

func TestAnExportTellsAServerThatRefusesItsUser(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t, "--requirepass", "secret")
	startExport(t, "-u", "redis://"+child.Addr(), "--every", "100ms").reasonIs(metrics.Rejected)
}

// pacedSource is a source whose n-th snapshot takes waits[n] and costs work[n]. It records when each was asked for.
type pacedSource struct {
	waits, work []time.Duration
	began       time.Time
	asked       []time.Duration // since began
}

func (s *pacedSource) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	n := len(s.asked)
	s.asked = append(s.asked, time.Since(s.began))
	at := func(all []time.Duration) time.Duration {
		if n < len(all) {
			return all[n]
		}
		return 0
	}
	select {
	case <-time.After(at(s.waits)):
	case <-ctx.Done():
		return keyspace.Snapshot{}, ctx.Err()
	}
	return keyspace.Snapshot{At: time.Now(), Complete: true, Cost: keyspace.Cost{OwnTime: at(s.work)}}, nil
}

// paced checks when an export with --every 1s asks a source for the first snapshots within a time.
func paced(t *testing.T, s *pacedSource, within time.Duration, want ...time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		target := &exportTarget{name: "a", open: &connect.Target{}, source: s}
		e := &export{
			program: &program{}, options: exportOptions{every: time.Second},
			targets: []*exportTarget{target}, metrics: metrics.New(metrics.Options{}, metrics.Target{Name: "a"}),
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		e.watch(ctx, target)
	})
	check.True(t, slices.Equal(s.asked[:min(len(want), len(s.asked))], want), "waits %v, work %v: updates at %v, want %v", s.waits, s.work, s.asked, want)
}

// An export does not pause after a stall, keeps its pace on a slow network, and works for a twentieth of the time. A
// long pause of the machine does not count as work for ever.
func TestAnExportKeepsItsPace(t *testing.T) {
	for _, stall := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 8 * time.Minute} {
		back := time.Second + stall
		paced(t, &pacedSource{waits: []time.Duration{0, stall}}, stall+5*time.Second, 0, time.Second, back, back+time.Second)
	}
	slow := &pacedSource{waits: slices.Repeat([]time.Duration{800 * time.Millisecond}, 100)}
	paced(t, slow, 60*time.Second-time.Millisecond, 0, time.Second)
	check.Equal(t, len(slow.asked), 60, "updates within a minute")
	paced(t, &pacedSource{
		waits: []time.Duration{0, 3 * time.Second},
		work:  []time.Duration{200 * time.Millisecond, 200 * time.Millisecond, time.Hour},
	}, 40*time.Second, 0, 4*time.Second, 11*time.Second, 26*time.Second, 27*time.Second)
}
