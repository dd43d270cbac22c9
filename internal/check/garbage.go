package check

import (
	"os"
	"runtime/debug"
)

// A test has a small heap and allocates much: without this setting of GOGC, a third of the CPU
// time of some packages is garbage collection.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
	}
}
