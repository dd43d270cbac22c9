package servertest_test

import (
	"context"
	"os"
	"testing"

	"locktop/internal/server"
	"locktop/internal/servertest"
)

func TestMain(m *testing.M) {
	servertest.SetParallel(8) // without Tests: each test starts servers of its own
	os.Exit(m.Run())
}

// client returns a client of a server, which ends with the test.
func client(t *testing.T, addr string) server.Client { return servertest.ClientForTest(t, addr, nil) }

// answers reports whether a server replies to a PING.
func answers(addr string) bool {
	rdb := server.NewClient(addr, server.ClientOptions{NoRetry: true})
	defer rdb.Close()
	return rdb.Ping(context.Background()).Err() == nil
}
