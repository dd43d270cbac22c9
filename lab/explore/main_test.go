package explore

import (
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// random is the variable of package lock that returns a random duration in [0, n). A program of
// another module cannot set it otherwise.
//
//go:linkname random locktop/lock.random
var random func(n time.Duration) time.Duration

// TestMain makes all random durations of package lock the middle of their range, so that an order can
// be repeated.
func TestMain(m *testing.M) {
	if random == nil {
		panic("package lock has no variable random")
	}
	random = func(n time.Duration) time.Duration { return n / 2 }
	logging.Disable() // go-redis logs every failed connection
	goleak.VerifyTestMain(servertest.Tests{M: m, Parallel: testtier.Size(12, 32, 32)})
}
