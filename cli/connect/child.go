package connect

import (
	"context"
	"slices"
)

// Child returns the arguments with which another process connects to one of the servers,
// as the same user, and the present password, which is not among them. It returns an error
// with --ssh.
func (c *Flags) Child(ctx context.Context, addr string, db int) (args []string, password string, err error) {
	if c.ssh != "" {
		return nil, "", usagef("run it on "+c.ssh, "--monitor does not go through --ssh")
	}
	seeds, err := c.seeds()
	if err != nil {
		return nil, "", err
	}
	e := seeds[0]
	if i := slices.IndexFunc(seeds, func(e endpoint) bool { return e.addr == addr }); i >= 0 {
		e = seeds[i]
	}
	e.addr, e.db = addr, db
	if c.secret != nil {
		now, err := c.secret.now(ctx)
		if err != nil {
			return nil, "", err
		}
		now = now.withUser(e.user)
		e.user, e.pass = now.user, now.pass
	}
	args = append([]string{"-u", e.url(true), "--timeout", c.timeout.String()}, c.security.flags(false)...)
	if e.pass != "" {
		args = append(args, "--askpass")
	}
	return args, e.pass, nil
}
