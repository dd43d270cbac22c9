// Package docs has the texts of docs that the program prints.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed load.md
var load string

// Protocol returns the section of load.md on the protocol of lock clients, with an example
// client.
func Protocol() string {
	_, section, _ := strings.Cut(load, "\n## Any lock library")
	section, _, _ = strings.Cut(section, "\n## ")
	return "## Any lock library" + section + "\n"
}
