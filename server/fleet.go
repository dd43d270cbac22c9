package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// fleet is a number of children that live and die together.
type fleet []*Child

// add starts one more child.
func (f *fleet) add(ctx context.Context, o ChildOptions) (*Child, error) {
	c, err := StartChild(ctx, o)
	if err != nil {
		return nil, err
	}
	*f = append(*f, c)
	return c, nil
}

// stop ends all of them as a crash would, which is quicker than many shutdowns,
// and removes what they leave.
func (f fleet) stop() error {
	var errs []error
	for _, c := range f {
		errs = append(errs, c.Kill(), c.Stop())
	}
	return errors.Join(errs...)
}

// at returns the child that listens there, nil if none does.
func (f fleet) at(addr string) *Child {
	for _, c := range f {
		if c.Addr() == addr {
			return c
		}
	}
	return nil
}

// addrs returns where they listen.
func (f fleet) addrs() []string {
	addrs := make([]string, len(f))
	for i, c := range f {
		addrs[i] = c.Addr()
	}
	return addrs
}

// awaitPause is the time between two looks at what others have to bring about.
const awaitPause = 10 * time.Millisecond

// await looks again and again until it is true, or ctx ends.
func await(ctx context.Context, what string, true func() (bool, error)) error {
	for {
		ok, err := true()
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

// dial returns a client of a child, for one to set up what it belongs to.
func dial(c *Child) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: c.Addr(), MaxRetries: -1, DisableIdentity: true})
}

// portOf returns the port of an address, as Redis' own commands want it.
func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// hasLine reports whether a line of an INFO reply begins with that.
func hasLine(info, line string) bool {
	return slices.ContainsFunc(strings.Split(info, "\r\n"), func(s string) bool { return strings.HasPrefix(s, line) })
}
