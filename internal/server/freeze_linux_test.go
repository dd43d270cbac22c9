package server

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestServerHasStoppedWhenFreezeReturns(t *testing.T) {
	c := ForTest(t)
	for range 200 { // usually the server has stopped before the check even without waiting
		if err := c.Freeze(); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID()))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(status), "State:\tT") {
			t.Fatalf("it still runs:\n%s", status)
		}
		if err := c.Continue(); err != nil {
			t.Fatal(err)
		}
	}
}
