package cli

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// shell runs a command that is meant for redis-cli on a server, in a shell.
func shell(t *testing.T, addr, command string) string {
	t.Helper()
	for _, name := range []string{"bash", "redis-cli"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	command = strings.Replace(command, "redis-cli", "redis-cli -p "+port, 1)
	run := exec.Command("bash", "-c", command)
	run.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}
