package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
)

// ran runs locktop and returns its stdout, stderr and exit code.
func ran(t *testing.T, args ...string) (out, said string, code int) {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	o, e := newLines(), newLines()
	code = Run(t.Context(), args, strings.NewReader(""), o, e)
	return o.String(), e.String(), code
}

// audited returns the lines of the audit log.
func audited(t *testing.T) []auditLine {
	t.Helper()
	return auditedIn(t, filepath.Join(os.Getenv("XDG_STATE_HOME"), "locktop", "audit.jsonl"))
}

// auditedIn returns the lines of an audit log; nil if there is none.
func auditedIn(t *testing.T, path string) []auditLine {
	t.Helper()
	if !fileExists(path) {
		return nil
	}
	return decodedLines[auditLine](t, readText(t, path))
}

func TestReleaseOnlyLooksUnlessItMayWrite(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token, "PX", "60000")
	_, said, code := ran(t, "release", "lock:a", "--yes", "-u", "redis://"+addr)
	if code != exitUsage || !strings.Contains(said, "nothing was changed") || !strings.Contains(said, "--write") {
		t.Errorf("code %d: %s", code, said)
	}
	if got := value(t, addr, "lock:a"); got != token || audited(t) != nil {
		t.Errorf("it was changed: %q, %v", got, audited(t))
	}
}

// value returns the value of a key.
func value(t *testing.T, addr, key string) string {
	t.Helper()
	v, err := sent(t, addr, "GET", key).Text()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	return v
}

func TestReleaseReleasesTheLockAndWritesTheAuditLog(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token, "PX", "60000")
	out, said, code := ran(t, "release", "lock:a", "--yes", "--write", "--token", token, "-u", "redis://"+addr)
	if code != exitFine || out != "lock:a is released\n" || value(t, addr, "lock:a") != "" {
		t.Errorf("code %d: %s%s", code, out, said)
	}
	lines := audited(t)
	if len(lines) != 2 || lines[0].Outcome != "intended" || lines[1].Outcome != "done" || lines[0].ID != lines[1].ID || lines[0].Key != "lock:a" {
		t.Errorf("written down: %+v", lines)
	}
	if strings.Contains(lines[0].Holders[0], token) {
		t.Error("the token was written down")
	}
}

func TestReleaseNamesTheNewHolder(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a", otherToken, "PX", "60000")
	_, said, code := ran(t, "release", "lock:a", "--yes", "--write", "--token", token, "-u", "redis://"+addr)
	if code != exitChanged || !strings.Contains(said, otherToken) || value(t, addr, "lock:a") != otherToken {
		t.Errorf("code %d: %s", code, said)
	}
}

func TestALockWithoutADeadlineIsGivenOne(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token)
	out, said, code := ran(t, "release", "lock:a", "--yes", "--write", "--give-ttl", "30s", "-u", "redis://"+addr)
	if code != exitFine || out != "lock:a expires in 30 s\n" || value(t, addr, "lock:a") != token {
		t.Errorf("code %d: %s%s", code, out, said)
	}
	_, said, code = ran(t, "release", "lock:a", "--yes", "--write", "--give-ttl", "1m", "-u", "redis://"+addr)
	if code != exitChanged {
		t.Errorf("it has a deadline, and got another: code %d: %s", code, said)
	}
}

// The printed command has the same effect as release.
func TestADryRunPrintsACommandThatWorks(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:it's \"a\"\x01", token, "PX", "60000")
	out, said, code := ran(t, "release", "lock:it's \"a\"\x01", "--dry-run", "-u", "redis://"+addr)
	if code != exitFine || value(t, addr, "lock:it's \"a\"\x01") != token {
		t.Fatalf("code %d: %s", code, said)
	}
	if got := pasted(t, out); got != "1" {
		t.Errorf("the command\n%s\nanswers %q", out, got)
	}
	if value(t, addr, "lock:it's \"a\"\x01") != "" {
		t.Error("the lock is there yet")
	}
	if got := pasted(t, out); got != "0" {
		t.Errorf("sent again it answers %q", got)
	}
}

// If the audit log cannot be written, nothing is done.
func TestWithoutAnAuditLogNothingIsDone(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token, "PX", "60000")
	for name, spoil := range map[string]func(folder string){
		"a folder in its place": func(folder string) { _ = os.MkdirAll(filepath.Join(folder, "locktop", "audit.jsonl"), 0o700) },
		"others may read it": func(folder string) {
			_ = os.MkdirAll(filepath.Join(folder, "locktop"), 0o700)
			path := filepath.Join(folder, "locktop", "audit.jsonl")
			_ = os.WriteFile(path, nil, 0o600)
			_ = os.Chmod(path, 0o644)
		},
		"a full disk": func(folder string) {
			_ = os.MkdirAll(filepath.Join(folder, "locktop"), 0o700)
			_ = os.Symlink("/dev/full", filepath.Join(folder, "locktop", "audit.jsonl"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			t.Setenv("XDG_STATE_HOME", folder)
			spoil(folder)
			said := newLines()
			code := Run(t.Context(), []string{"release", "lock:a", "--yes", "--write", "-u", "redis://" + addr}, strings.NewReader(""), newLines(), said)
			if code != exitFailure || !strings.Contains(said.String(), "nothing was changed") || value(t, addr, "lock:a") != token {
				t.Errorf("code %d: %s", code, said)
			}
		})
	}
}

func TestReleaseRefusesAKeyThatIsNoLock(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "greeting", "hello")
	for _, command := range []string{"release", "inspect"} {
		for _, key := range []string{"greeting", "nothing"} {
			if _, said, code := ran(t, command, key, "-u", "redis://"+addr); code != exitNoLock {
				t.Errorf("%s %s: code %d: %s", command, key, code, said)
			}
		}
	}
}

func TestReleaseAsksOnlyAtATerminal(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token, "PX", "60000")
	if _, said, code := ran(t, "release", "lock:a", "--write", "-u", "redis://"+addr); code != exitUsage || !strings.Contains(said, "--yes") {
		t.Errorf("code %d: %s", code, said)
	}
	if value(t, addr, "lock:a") != token {
		t.Error("it was released")
	}
}

func TestInspectExplainsALock(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:\x1b[2J", token, "PX", "60000")
	out, said, code := ran(t, "inspect", "lock:\x1b[2J", "-u", "redis://"+addr)
	if code != exitFine {
		t.Fatalf("code %d: %s", code, said)
	}
	for _, want := range []string{`lock:\x1b[2J`, "held, expires in", "set-nx", "because", token, "Stored as", "string, TTL", "redis-cli -h "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("it prints a control character: %q", out)
	}
	out, _, _ = ran(t, "inspect", "lock:\x1b[2J", "--json", "-u", "redis://"+addr)
	j := decoded[jsonInspection](t, out)
	if j.Key != "lock:\x1b[2J" || len(j.Raw) != 1 || *j.Raw[0].Value != token || j.Command == "" || len(j.Why) == 0 {
		t.Errorf("got %+v", j)
	}
}

func TestDoctorReportsFindingsAndBlindSpots(t *testing.T) {
	addr := server.ForTest(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Addr()
	out, said, code := ran(t, "doctor", "--for", "1ms", "-u", "redis://"+addr)
	if code != exitFindings || !strings.Contains(out, "evictable") || !strings.Contains(out, "What cannot be seen") {
		t.Errorf("code %d: %s%s", code, out, said)
	}
	send(t, addr, "SET", "lock:a", token)
	out, _, code = ran(t, "doctor", "--json", "--for", "1ms", "-u", "redis://"+addr)
	j := decoded[jsonDiagnosis](t, out)
	if code != exitFindings || len(j.Findings) != 1 || j.Findings[0].ID != "never-expires" || j.Risks[0].ID != "evictable" || len(j.Blind) == 0 {
		t.Errorf("code %d: %+v", code, j)
	}
}

func TestDoctorIsContentWithASoundServer(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token, "PX", "60000")
	if out, said, code := ran(t, "doctor", "--for", "1ms", "-u", "redis://"+addr); code != exitFine || strings.Contains(out, "\x1b") {
		t.Errorf("code %d: %s%s", code, out, said)
	}
}

// Each server of a Redlock removes the token that was seen, and no other.
func TestARedlockIsReleasedWhereItsTokenIs(t *testing.T) {
	for _, c := range []struct {
		name string
		have []string // the token on each server
		left []string
	}{
		{"a majority, and a copy of somebody else", []string{token, token, otherToken}, []string{"", "", otherToken}},
		{"left over on one server", []string{"", token, ""}, []string{"", "", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig := server.IndependentForTest(t, len(c.have))
			var urls []string
			for i, node := range rig.Nodes() {
				urls = append(urls, "redis://"+node.Addr())
				if c.have[i] != "" {
					send(t, node.Addr(), "SET", "lock:a", c.have[i], "PX", "60000")
				}
			}
			out, said, code := ran(t, "release", "lock:a", "--write", "--yes", "--token", token, "--redlock", strings.Join(urls, ","))
			if code != exitFine || out != "lock:a is released\n" {
				t.Errorf("code %d: %s%s", code, out, said)
			}
			for i, node := range rig.Nodes() {
				if got := value(t, node.Addr(), "lock:a"); got != c.left[i] {
					t.Errorf("server %d has %q, want %q", i+1, got, c.left[i])
				}
			}
			if lines := audited(t); len(lines) != 2 || lines[1].Outcome != "done" {
				t.Errorf("written down: %+v", lines)
			}
		})
	}
}
