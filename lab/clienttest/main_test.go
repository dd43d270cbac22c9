//go:build unix

package clienttest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"locktop/internal/servertest"
	"locktop/loadgen"
)

// asClient is the environment variable that makes this test binary a client with locks of
// the kind that it names.
const asClient = "LOCKTOP_TEST_CLIENT"

func TestMain(m *testing.M) {
	kind := os.Getenv(asClient)
	if name, ok := strings.CutPrefix(kind, "test:"); ok {
		style, flaw, _ := strings.Cut(name, "/")
		if err := (&testClient{style: style, flaw: flaw}).run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if kind != "" {
		if err := loadgen.ServeClient(context.Background(), loadgen.Lock{Kind: loadgen.Kind(kind)}, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(servertest.Tests{M: m, Parallel: 12})
}

// command returns the command of a client with locks of a kind.
func command(kind string) string { return fmt.Sprintf("%s=%s exec '%s'", asClient, kind, os.Args[0]) }
