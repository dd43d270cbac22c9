package server_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

func TestServerHasStoppedWhenFreezeReturns(t *testing.T) {
	t.Parallel()
	c := servertest.RedisForTest(t)
	for range 200 { // usually the server has stopped before the check even without waiting
		check.NoError(t, c.Freeze())
		status := check.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID())))(t)
		check.Require(t, strings.Contains(string(status), "State:\tT"), "it still runs:\n%s", status)
		check.NoError(t, c.Continue())
	}
}
