package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"locktop/internal/server"
)

// children is a group of redis-servers with one start and one end.
type children []*server.Child

// add starts one more child.
func (cs *children) add(ctx context.Context, o server.ChildOptions) (*server.Child, error) {
	c, err := server.StartChild(ctx, o)
	if err != nil {
		return nil, err
	}
	*cs = append(*cs, c)
	return c, nil
}

// stop kills all children, which is faster than a shutdown of each, and removes their
// directories.
func (cs children) stop() error {
	var errs []error
	for _, c := range cs {
		errs = append(errs, c.Kill(), c.Stop())
	}
	return errors.Join(errs...)
}

// at returns the child with the address addr, or nil.
func (cs children) at(addr string) *server.Child {
	for _, c := range cs {
		if c.Addr() == addr {
			return c
		}
	}
	return nil
}

// addrs returns the addresses of the children.
func (cs children) addrs() []string {
	addrs := make([]string, len(cs))
	for i, c := range cs {
		addrs[i] = c.Addr()
	}
	return addrs
}

// awaitPause is the time between two calls of the condition of await.
const awaitPause = 10 * time.Millisecond

// await calls cond until it returns true or ctx ends. The error contains what.
func await(ctx context.Context, what string, cond func() (bool, error)) error {
	for {
		ok, err := cond()
		if ok {
			return nil
		}
		select {
		case <-time.After(awaitPause):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}

// dial returns a client of a child, for the set-up of servers.
func dial(c *server.Child) server.Client {
	return server.NewClient(c.Addr(), server.ClientOptions{NoRetry: true})
}

// portOf returns the port of an address, as Redis commands expect it.
func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// hasLine reports whether a line of an INFO reply begins with line.
func hasLine(info, line string) bool {
	return slices.ContainsFunc(strings.Split(info, "\r\n"), func(s string) bool { return strings.HasPrefix(s, line) })
}
