// Locktop shows the distributed locks in a Redis keyspace, live, and can
// generate load.
package main

import (
	"context"
	"os"

	"locktop/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
