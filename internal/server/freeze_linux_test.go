package server

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"locktop/internal/check"
)

func TestServerHasStoppedWhenFreezeReturns(t *testing.T) {
	t.Parallel()
	c := ForTest(t)
	for range 200 { // usually the server has stopped before the check even without waiting
		check.NoError(t, c.Freeze())
		status := check.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID())))(t)
		check.Require(t, strings.Contains(string(status), "State:\tT"), "it still runs:\n%s", status)
		check.NoError(t, c.Continue())
	}
}
