package cli

import (
	"github.com/spf13/pflag"

	"locktop/cli/connect"
)

// writeFlags holds the flags that permit actions on locks.
type writeFlags struct {
	write      bool
	production bool
}

func (r *writeFlags) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Acting", pflag.ContinueOnError)
	set.SortFlags = false
	set.BoolVar(&r.write, "write", false, "let x break locks, after a question; what is done is written to an audit log")
	set.BoolVar(&r.production, "production", false, "have the name of a lock typed before anything is done to it")
	return set
}

// check returns an error for --write with all databases, where one name may stand
// for several keys.
func (r *writeFlags) check(c *connect.Flags) error {
	if r.write && c.AllDatabases() {
		return usageErrorf("say which with -n", "--write acts on the locks of one database")
	}
	return nil
}
