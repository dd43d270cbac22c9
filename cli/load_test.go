package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/server"
)

// loaded starts a load with numbered holders as a process of its own, and returns
// when a lock has been held five times.
func loaded(t *testing.T, args ...string) (cmd *exec.Cmd, out *bytes.Buffer, rdb *redis.Client) {
	t.Helper()
	addr := server.ForTest(t).Addr()
	rdb = redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out = &bytes.Buffer{}
	cmd = exec.Command(self)
	cmd.Args = append([]string{"locktop", "load", "-u", "redis://" + addr, "--fence", "true", "--duration", "10m"}, args...)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for range 3000 {
		for _, key := range rdb.Keys(t.Context(), "*:fence").Val() {
			if n, _ := rdb.Get(t.Context(), key).Int(); n >= 5 {
				return cmd, out, rdb
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the load never began")
	return nil, nil, nil
}

func TestAnInterruptedLoadReportsAndLeavesNothing(t *testing.T) {
	cmd, out, rdb := loaded(t, "--kind", "fair")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("ended with %v, want exit code %d", err, exitInterrupted)
	}
	for _, want := range []string{"arrivals ", "acquired ", "No two clients were inside at once."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the report:\n%s", want, out)
		}
	}
	if keys := rdb.Keys(context.Background(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys left behind: %q", keys)
	}
}

func TestWhatAKilledLoadLeavesEndsByItself(t *testing.T) {
	for _, kind := range []string{"mutex", "fair", "reentrant"} {
		cmd, _, rdb := loaded(t, "--kind", kind, "--hold", "50ms", "--ttl", "1s")
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		for _, key := range rdb.Keys(t.Context(), "*").Val() {
			// What has gone since has gone by itself.
			if left := rdb.PTTL(t.Context(), key).Val(); left == -1 || left > 15*time.Second {
				t.Errorf("%s: %s stays for %s", kind, key, left)
			}
		}
	}
}
