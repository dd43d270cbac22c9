package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
)

// ran runs the program with a state directory of its own, for audited.
func ran(t *testing.T, args ...string) outcome {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	return locktop(t, args...)
}

// aLock starts a server with the lock lock:a, which is held for 10 minutes.
func aLock(t *testing.T) (addr string) {
	t.Helper()
	addr = server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token, "PX", 600_000)
	return addr
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

// value returns the value of a key.
func value(t *testing.T, addr, key string) string {
	t.Helper()
	v, err := sent(t, addr, "GET", key).Text()
	check.Require(t, err == nil || err == redis.Nil, "%v", err)
	return v
}

func TestADryRunPrintsACommandThatWorks(t *testing.T) {
	addr := server.ForTest(t).Addr()
	const key = "lock:it's \"a\"\x01"
	send(t, addr, "SET", key, token, "PX", "60000")
	command := run(t, "release", key, "--dry-run", "-u", "redis://"+addr)
	check.True(t, value(t, addr, key) == token, "the lock is gone")
	got := pasted(t, command)
	check.True(t, got == "1" && value(t, addr, key) == "", "the command\n%s\nanswers %q", command, got)
	got = pasted(t, command)
	check.True(t, got == "0", "sent again it answers %q", got)
}

func TestWithoutAnAuditLogNothingIsDone(t *testing.T) {
	addr := aLock(t)
	for name, spoil := range map[string]func(path string) error{
		"a folder in its place": func(path string) error { return os.Mkdir(path, 0o700) },
		"others may read it":    func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o644)) },
		"a full disk":           func(path string) error { return os.Symlink("/dev/full", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			check.NoError(t, spoil(path))
			got := locktop(t, "release", "lock:a", "--yes", "--write", "--audit-log", path, "-u", "redis://"+addr)
			got.fails(t, exitFailure, "nothing was changed")
			check.True(t, value(t, addr, "lock:a") == token, "the lock is gone")
		})
	}
}

func TestReleaseRefusesAKeyThatIsNoLock(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "greeting", "hello")
	for _, command := range []string{"release", "inspect"} {
		for _, key := range []string{"greeting", "nothing"} {
			locktop(t, command, key, "-u", "redis://"+addr).fails(t, exitNoLock)
		}
	}
}

func TestReleaseAsksOnlyAtATerminal(t *testing.T) {
	addr := aLock(t)
	got := locktop(t, "release", "lock:a", "--write", "-u", "redis://"+addr)
	got.fails(t, exitUsage, "--yes")
	check.True(t, value(t, addr, "lock:a") == token, "it was released")
}

func TestInspectExplainsALock(t *testing.T) {
	addr := server.ForTest(t).Addr()
	send(t, addr, "SET", "lock:\x1b[2J", token, "PX", "60000")
	out := run(t, "inspect", "lock:\x1b[2J", "-u", "redis://"+addr)
	wantAll(t, out, `lock:\x1b[2J`, "held, expires in", "set-nx", "because", token, "Stored as", "string, TTL", "redis-cli -h ")
	check.False(t, strings.Contains(out, "\x1b"), "it prints a control character: %q", out)
	j := decoded[jsonInspection](t, run(t, "inspect", "lock:\x1b[2J", "--json", "-u", "redis://"+addr))
	check.True(t, j.Key == "lock:\x1b[2J" && len(j.Raw) == 1 && *j.Raw[0].Value == token && j.Command != "" && len(j.Why) != 0, "got %+v", j)
}

func TestDoctorReportsFindingsAndBlindSpots(t *testing.T) {
	addr := server.ForTest(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Addr()
	got := locktop(t, "doctor", "--for", "1ms", "-u", "redis://"+addr)
	check.True(t, got.code == exitFindings && strings.Contains(got.out, "evictable") && strings.Contains(got.out, "What cannot be seen"),
		"%+v", got)
	send(t, addr, "SET", "lock:a", token)
	got = locktop(t, "doctor", "--json", "--for", "1ms", "-u", "redis://"+addr)
	j := decoded[jsonDiagnosis](t, got.out)
	if got.code != exitFindings || len(j.Findings) != 1 || j.Findings[0].ID != "never-expires" || j.Risks[0].ID != "evictable" || len(j.Blind) == 0 {
		t.Errorf("code %d: %+v", got.code, j)
	}
}

func TestDoctorIsContentWithASoundServer(t *testing.T) {
	out := run(t, "doctor", "--for", "1ms", "-u", "redis://"+aLock(t))
	check.False(t, strings.Contains(out, "\x1b"), "it prints a control character: %q", out)
}

// Each server of a Redlock removes the token that was seen, and no other.
func TestARedlockIsReleasedWhereItsTokenIs(t *testing.T) {
	rig := server.IndependentForTest(t, 3)
	for _, c := range []struct {
		name string
		have []string // the token on each server
		left []string
	}{
		{"a majority, and a copy of somebody else", []string{token, token, otherToken}, []string{"", "", otherToken}},
		{"left over on one server", []string{"", token, ""}, []string{"", "", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, addr := range nodesOf(rig) {
				send(t, addr, "FLUSHALL")
				if c.have[i] != "" {
					send(t, addr, "SET", "lock:a", c.have[i], "PX", "60000")
				}
			}
			got := ran(t, append([]string{"release", "lock:a", "--write", "--yes", "--token", token}, redlockFlags(rig)...)...)
			check.True(t, got.code == exitFine && got.out == "lock:a is released\n", "%+v", got)
			for i, addr := range nodesOf(rig) {
				got := value(t, addr, "lock:a")
				check.True(t, got == c.left[i], "server %d has %q, want %q", i+1, got, c.left[i])
			}
			lines := audited(t)
			check.True(t, len(lines) == 2 && lines[1].Outcome == "done", "written down: %+v", lines)
		})
	}
}
