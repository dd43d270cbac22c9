// Locktop shows every distributed lock in a Redis keyspace, live, and can make
// traffic of its own.
package main

import (
	"context"
	"os"

	"locktop/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
