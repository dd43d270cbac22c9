package cli

import (
	"fmt"
	"strings"
	"testing"

	"locktop/internal/server"
	"locktop/internal/testtier"
)

// Three threads of Redisson hold a fair lock each, and wait for the next one.
func TestADeadlockOfThreeThreadsIsFound(t *testing.T) {
	testtier.Long(t, "it watches a deadlock until it is old enough to report")
	t.Parallel()
	addr := server.ForTest(t).Addr()
	thread := func(n int) string { return fmt.Sprintf("8743c9c0-0795-4907-87fd-6c719a6b4586:%d", n%3+1) }
	for n := range 3 {
		key := fmt.Sprintf("gate:%d", n+1)
		send(t, addr, "HSET", key, thread(n), "1")
		send(t, addr, "PEXPIRE", key, "600000")
		send(t, addr, "RPUSH", "redisson_lock_queue:{"+key+"}", thread(n+2))
		send(t, addr, "ZADD", "redisson_lock_timeout:{"+key+"}", "99999999999999", thread(n+2))
	}
	url := "redis://" + addr
	for _, args := range [][]string{{"list", "--stuck", "--for", "2s"}, {"doctor", "--for", "2s"}} {
		within(t, longestWait, func() bool { // a busy machine may read the locks once in this time
			out := locktop(t, append(args, "-u", url)...).out
			return strings.Contains(out, "gate:2") && strings.Contains(out, "deadlock") && !strings.Contains(out, "possible")
		})
	}
	if got := locktop(t, "list", "--stuck", "-u", url); strings.Count(got.out, "possible-deadlock") != 3 {
		t.Errorf("a single read: %s%s", got.out, got.errors)
	}
	e := startReadyExport(t, "-u", url)
	within(t, longestWait, func() bool { return e.value("locktop_findings", `finding="deadlock"`) == 3 })
	term := openTerminal(t, 140, 40, "-u", url)
	term.want("Deadlock: 8743c9c0-", "of 8743c9c0-").press("o").want("deadlock with 8743c9c0-")
	term.quit()

	send(t, addr, "DEL", "gate:2") // its holder ends
	within(t, longestWait, func() bool { return e.value("locktop_findings", `finding="deadlock"`) == 0 })
}
