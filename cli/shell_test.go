package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
)

// pasted runs a line in a POSIX shell that finds locktop and redis-cli, with
// additional environment variables, and returns the output.
func pasted(t *testing.T, line string, env ...string) string {
	t.Helper()
	for _, name := range []string{"sh", "redis-cli"} {
		if _, err := exec.LookPath(name); err != nil {
			check.Require(t, os.Getenv(server.RequireRedis) == "", "%v", err)
			t.Skipf("%v: install redis-server, which brings it (apt-get install redis-server, brew install redis), to run this test", err)
		}
	}
	run := exec.Command("sh")
	run.Dir = t.TempDir()
	run.Stdin = strings.NewReader(line + "\n") // it may be longer than an argument
	run.Env = append([]string{"PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + t.TempDir()}, env...)
	out, err := run.CombinedOutput()
	check.Require(t, err == nil, "%s\n%v: %s", line, err, out)
	made, err := os.ReadDir(run.Dir)
	check.Require(t, err == nil && len(made) == 0, "%s\nmakes %v, %v", line, made, err)
	return strings.TrimSpace(string(out))
}
