package report

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/loadgen"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis reports on every connection it cannot have
	goleak.VerifyTestMain(servertest.Tests{M: m, Parallel: 4})
}

// piped returns a client of a server inside the test's synctest bubble.
func piped(t *testing.T) loadgen.RedisClient {
	t.Helper()
	s := server.NewPiped()
	t.Cleanup(s.Close)
	return servertest.ClientForTest(t, s.Addr(), s.Dial)
}

// started returns a run that stops at the end of the test.
func started(t *testing.T, rdb loadgen.RedisClient, s loadgen.Scenario) *loadgen.Run {
	t.Helper()
	r := check.Must(loadgen.New(loadgen.Servers{Redis: rdb}, s))(t)
	return running(t, r)
}

func running(t *testing.T, r *loadgen.Run) *loadgen.Run {
	t.Helper()
	t.Cleanup(func() { check.ErrorIs(t, r.Close(), nil) })
	check.NoError(t, r.Start())
	return r
}

func stop(t *testing.T, r *loadgen.Run) {
	t.Helper()
	check.NoError(t, r.Stop())
}

// example returns a scenario with every key.
func example(t *testing.T) loadgen.Scenario {
	t.Helper()
	return check.Must(loadgen.Parse([]byte(exampleFile(t))))(t)
}

func exampleFile(t *testing.T) string {
	t.Helper()
	text := check.Must(os.ReadFile("../testdata/example.yaml"))(t)
	return string(text)
}
