package connect

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"locktop/internal/shell"
)

// Arguments returns the flags that lead to database db of the same servers, without a
// password.
func (r *Resolved) Arguments(db int) []string {
	c := r.flags
	var password []string
	switch {
	case c.given("password-command"):
		password = []string{"--password-command", c.command}
	case c.given("password-file"):
		password = []string{"--password-file", absolute(c.file)}
	case c.asksForPassword(r.seeds):
		password = []string{"--askpass"}
	}
	return slices.Concat(c.where(r), c.optionFlags(r.seeds[0], database{number: db}, password))
}

// Line returns the flags that lead to the same servers and databases, as words of a shell
// command. They do not depend on the environment, and have neither a password nor what
// finds one. Line returns "" if no shell command can have the flags.
func (r *Resolved) Line() string {
	c := r.flags
	where := c.where(r)
	if len(where) == 0 {
		where = []string{"-u", r.seeds[0].url(false)}
	}
	hasPassword := slices.ContainsFunc(passwordWays, c.given)
	if c.context == "" {
		hasPassword = hasPassword || slices.ContainsFunc(r.seeds, func(e endpoint) bool { return e.pass != "" })
	}
	var password []string
	if hasPassword {
		password = []string{"--askpass"}
	}
	db := database{number: r.seeds[0].db, all: c.db.all}
	line, _ := shell.Line(slices.Concat(where, c.optionFlags(r.seeds[0], db, password))...)
	return line
}

// optionFlags returns the flags beside those with the addresses of the servers.
func (c *Flags) optionFlags(e endpoint, db database, password []string) []string {
	var flags []string
	if c.context == "" && len(c.Redlock) == 0 && e.user != "" {
		flags = append(flags, "--user", e.user)
	} else if c.context != "" && c.user != "" {
		flags = append(flags, "--user", c.user)
	}
	flags = append(flags, password...)
	number := db.number != 0
	if len(c.Redlock) > 0 || c.context != "" {
		number = c.given("db")
	}
	if number || db.all {
		flags = append(flags, "-n", db.String())
	}
	if e.tls && len(c.Sentinels) > 0 && c.context == "" || c.security.tls && c.context != "" {
		flags = append(flags, "--tls")
	}
	flags = append(flags, c.security.flags(true)...)
	if c.context != "" && c.given("insecure") && !c.security.insecure {
		flags = append(flags, "--insecure=false") // the context may say otherwise
	}
	if c.given("ssh") {
		flags = append(flags, "--ssh", c.ssh)
	}
	if c.given("timeout") {
		flags = append(flags, "--timeout", c.timeout.String())
	}
	return flags
}

// where returns the flags with the addresses of the servers. It returns none for the
// default Redis of this machine.
func (c *Flags) where(r *Resolved) []string {
	var flags []string
	switch e := r.seeds[0]; {
	case len(c.Redlock) > 0:
		for _, e := range r.seeds {
			flags = append(flags, "--redlock", strings.ReplaceAll(e.url(true), ",", "%2C"))
		}
		return flags
	case c.context != "":
		flags = append(flags, "--context", c.context)
	case len(c.Sentinels) > 0:
		for _, sentinel := range r.sentinels {
			flags = append(flags, "--sentinel", sentinel.addr)
		}
		flags = append(flags, "--master", c.master)
		if c.sentinelUser != "" {
			flags = append(flags, "--sentinel-user", c.sentinelUser)
		}
		if c.sentinelTLS != nil {
			flags = append(flags, "--sentinel-tls="+strconv.FormatBool(*c.sentinelTLS))
		}
		return flags
	case e.network == "unix":
		flags = append(flags, "--socket", absolute(e.addr))
	case c.addressGiven() || e.tls || os.Getenv("LOCKTOP_URL") != "" || os.Getenv("REDIS_URL") != "":
		flags = append(flags, "-u", e.url(false))
	}
	if c.Cluster {
		flags = append(flags, "--cluster")
	}
	return flags
}

// url returns a URL without the password. It has the user and the database only
// if complete is true.
func (e endpoint) url(complete bool) string {
	u := url.URL{Scheme: "redis", Host: e.addr}
	if e.tls {
		u.Scheme = "rediss"
	}
	if e.network == "unix" {
		u = url.URL{Scheme: "unix", Path: e.addr}
	}
	if !complete {
		return u.String()
	}
	if e.user != "" {
		u.User = url.User(e.user)
	}
	if e.db != 0 {
		u.RawQuery = "db=" + strconv.Itoa(e.db)
	}
	return u.String()
}

// asksForPassword reports whether a command in the same shell must ask for the
// password, because neither the environment nor the context has it.
func (c *Flags) asksForPassword(seeds []endpoint) bool {
	if c.context != "" {
		return c.pass != ""
	}
	return slices.ContainsFunc(seeds, func(e endpoint) bool { return e.pass != "" && e.pass != os.Getenv("REDISCLI_AUTH") })
}

// absolute returns the absolute path of a file if possible, and path otherwise.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// RedisCLI returns the flags, except address and database, with which redis-cli
// connects to the servers of r.
func (r *Resolved) RedisCLI() []string {
	e := r.seeds[0]
	var flags []string
	if user := r.user(e); user != "" {
		flags = append(flags, "--user", user)
	}
	if e.pass != "" && e.pass != os.Getenv("REDISCLI_AUTH") || r.secret != nil {
		flags = append(flags, "--askpass")
	}
	if e.tls {
		flags = append(append(flags, "--tls"), r.flags.security.flags(false)...)
	}
	return flags
}

// user returns the ACL user of the connections to e; "" is the default user.
func (r *Resolved) user(e endpoint) string {
	if r.secret == nil {
		return e.user
	}
	now, _ := r.secret.last()
	return now.withUser(e.user).user
}

// Child returns the arguments with which another process connects to one of the servers,
// as the same user, and the present password, which is not among them. It returns an error
// with --ssh.
func (r *Resolved) Child(ctx context.Context, addr string, db int) (args []string, password string, err error) {
	if ssh := r.flags.ssh; ssh != "" {
		return nil, "", usagef("run it on "+ssh, "--monitor does not go through --ssh")
	}
	e := r.seeds[max(0, slices.IndexFunc(r.seeds, func(e endpoint) bool { return e.addr == addr }))]
	e.addr, e.db = addr, db
	if r.secret != nil {
		now, err := r.secret.now(ctx)
		if err != nil {
			return nil, "", err
		}
		now = now.withUser(e.user)
		e.user, e.pass = now.user, now.pass
	}
	args = append([]string{"-u", e.url(true), "--timeout", r.flags.timeout.String()}, r.flags.security.flags(false)...)
	if e.pass != "" {
		args = append(args, "--askpass")
	}
	return args, e.pass, nil
}
