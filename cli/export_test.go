package cli

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
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
	one, two := server.ForTest(t), server.ForTest(t)
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
	child := server.ForTest(t)
	addr := child.Addr()
	check.NoError(t, child.Kill())
	e := startExport(t, "-u", "redis://"+addr, "--every", "100ms")
	e.sees(`locktop_up\{target="redis://` + addr + `/0"\} 0`)
	status, _ := e.get("/readyz")
	check.True(t, status == 200, "not ready: %d", status)
	check.NoError(t, child.Restart(t.Context()))
	e.sees(`locktop_up\{target="redis://` + addr + `/0"\} 1`)
	e.says("answers after")
	n := strings.Count(e.errs.String(), "does not answer")
	check.True(t, n == 1, "%d lines say that it does not answer", n)
}

func TestExportReadsItsWebConfigurationAgain(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "web.yml")
	write(t, config, "")
	e := startExport(t, "-u", "redis://"+server.ForTest(t).Addr(), "--web.config.file", config)
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
		"an address of others":     {[]string{"--web.listen-address", "127.0.0.1:http:x"}, exitFailure, "--web.listen-address"},
		"one directory for two":    {[]string{"-u", "redis://127.0.0.1:1", "-u", "rediss://127.0.0.1:1", "--record", t.TempDir()}, exitUsage, "redis://127.0.0.1:1/0 and rediss://127.0.0.1:1/0 would have the same directory"},
		"findings only":            {[]string{"--stuck"}, exitUsage, "unknown flag --stuck"},
	} {
		t.Run(name, func(t *testing.T) {
			locktop(t, append([]string{"export"}, c.args...)...).fails(t, c.code, c.says)
		})
	}
}
