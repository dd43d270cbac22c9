package cli

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/demo"
	"locktop/loadgen"
	"locktop/loadgen/scenarios"
	"locktop/tui"
)

// ownLoad opens the load of the screen on the server that the screen shows. The load
// has its own connections. ownLoad refuses the same servers as locktop load.
type ownLoad struct {
	program    *program
	connection *connect.Flags
	now        bool // --load is set

	ground *loadServers
	load   *loadgen.Group
}

func (o *ownLoad) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Load", pflag.ContinueOnError)
	set.BoolVar(&o.now, "load", false, "run clients on this server from the Load page, under a prefix of their own; only on this machine")
	return set
}

// check returns an error if --load is set for servers that permit no load.
func (o *ownLoad) check(c *connect.Flags, may writeFlags) error {
	switch {
	case !o.now:
		return nil
	case may.production:
		return usageErrorf("", "--load and --production contradict each other")
	case c.Redlock():
		return usageErrorf("locktop load --redlock does", "--load runs on one server")
	case c.AllDatabases():
		return usageErrorf("say which with -n", "--load runs in one database")
	}
	remote, err := c.Remote()
	if err == nil && remote != "" {
		err = notLocal("locktop load --yes-load-this-server does, without the screen", remote)
	}
	return err
}

// offered reports whether the screen may offer to run a load.
func (o *ownLoad) offered(may writeFlags) bool {
	if may.production || o.connection.Redlock() || o.connection.AllDatabases() {
		return false
	}
	remote, err := o.connection.Remote()
	return err == nil && remote == ""
}

// Open implements [tui.Loader].
func (o *ownLoad) Open(ctx context.Context) (tui.Load, error) {
	quiet := *o.program
	quiet.notes = messages{to: io.Discard} // the warnings have appeared before the screen
	s := demo.Scenario(20)
	s.Name, s.Caption = "own server", "Clients fight over three locks of this server, and renew their leases while they work. "+
		"Every key begins with the prefix and is deleted when the clients stop."
	var flags loadOptions
	g, err := quiet.openLoadServers(ctx, o.connection, &flags, s)
	if err != nil {
		return nil, err
	}
	if err := g.checkPrefix(ctx, s, false); err != nil {
		g.close()
		return nil, err
	}
	o.load, err = loadgen.NewGroup(g.Servers, s)
	if err != nil {
		g.close()
		return nil, err
	}
	o.ground = g
	return o.load, nil
}

// close stops the clients and deletes their keys.
func (o *ownLoad) close() {
	if o.load != nil {
		_ = o.load.Close() // locks that Close could not release expire
		o.ground.close()
	}
}

// ownScenes returns the scenarios that need only one server.
func ownScenes() []loadgen.Scenario {
	return slices.DeleteFunc(scenarios.All(), func(s loadgen.Scenario) bool { return s.Lock.Kind == loadgen.Redlock })
}
