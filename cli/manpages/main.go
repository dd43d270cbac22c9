// Command manpages writes the manual pages of locktop and of its commands into a folder.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"locktop/cli"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: manpages FOLDER")
	}
	root := cli.Documentation()
	root.DisableAutoGenTag = true // the tag has the generator's name and a date
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "locktop " + root.Version, Manual: "locktop"}, args[0])
}
