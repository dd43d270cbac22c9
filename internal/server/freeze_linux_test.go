package server

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestServerHasStoppedWhenFreezeReturns(t *testing.T) {
	t.Parallel()
	c := ForTest(t)
	for range 200 { // usually the server has stopped before the check even without waiting
		must(t, c.Freeze())
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID()))
		must(t, err)
		if !strings.Contains(string(status), "State:\tT") {
			t.Fatalf("it still runs:\n%s", status)
		}
		must(t, c.Continue())
	}
}
