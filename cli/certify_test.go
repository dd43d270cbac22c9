//go:build linux

package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"locktop/internal/server"
	"locktop/internal/testtier"
)

// inside returns the processes whose environment has the name of a directory, or which run
// in it, as the servers, which overwrite their environment.
func inside(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	must(t, err)
	var found []string
	for _, file := range all {
		env, _ := os.ReadFile(file) // it may have ended, or belong to another user
		process := filepath.Dir(file)
		cwd, _ := os.Readlink(filepath.Join(process, "cwd"))
		if strings.Contains(string(env), dir) || strings.HasPrefix(cwd, dir) {
			args, _ := os.ReadFile(filepath.Join(process, "cmdline"))
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// certifying starts certify in a process of its own. It returns when servers and clients
// run: redis-server or valkey-server.
func certifying(t *testing.T) (cmd *exec.Cmd, out *bytes.Buffer, dir string) {
	t.Helper()
	server.ForTest(t) // skips without redis-server
	self, err := os.Executable()
	must(t, err)
	dir = t.TempDir()
	locktop := filepath.Join(dir, "locktop")
	must(t, os.Symlink(self, locktop))
	out = &bytes.Buffer{}
	cmd = exec.Command(locktop, "certify", "--exec", locktop+" load --as-client mutex", "--tests", "renewal,freeze,nodes-2-down,failover")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Stdout = out
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for range 3000 {
		if running := inside(t, dir); len(running) > 5 && strings.Contains(strings.Join(running, " "), "-server") {
			return cmd, out, dir
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the tests never began")
	return nil, nil, ""
}

func TestAnInterruptedCardIsPrintedAndLeavesNoProcess(t *testing.T) {
	testtier.Long(t, "it starts client processes")
	t.Parallel()
	cmd, out, dir := certifying(t)
	must(t, cmd.Process.Signal(os.Interrupt))
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitInterrupted {
		t.Errorf("ended with %v, want exit code %d:\n%s", err, exitInterrupted, out)
	}
	for _, want := range []string{"TEST ", "renewal       unclear", "it was interrupted", "nodes-2-down  -"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the card:\n%s", want, out)
		}
	}
	if left := inside(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestAKilledCertifyLeavesNoProcess(t *testing.T) {
	t.Parallel()
	cmd, _, dir := certifying(t)
	must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	var left []string
	for range 1000 {
		if left = inside(t, dir); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("left behind: %q", left)
}
