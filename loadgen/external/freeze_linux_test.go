package external

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"locktop/internal/check"
)

func TestNoThreadOfAClientRunsOnceFreezeReturns(t *testing.T) {
	t.Parallel()
	p := start(t, "forks")
	forked := check.Must(strconv.Atoi(mustLock(t, p, "a").Token()))(t)
	for range 100 { // usually all threads have stopped before the check even without waiting
		check.NoError(t, p.Freeze())
		for _, pid := range []int{p.cmd.Process.Pid, forked} {
			threads := check.Must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid)))(t)
			check.Require(t, len(threads) > 0, "process %d has ended", pid)
			for _, path := range threads {
				status := check.Must(os.ReadFile(path))(t)
				check.Require(t, bytes.Contains(status, []byte("State:\tT")), "it still runs:\n%s", status)
			}
		}
		check.NoError(t, p.Continue())
	}
}
