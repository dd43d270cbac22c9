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
func (c *Flags) Arguments(db int) ([]string, error) {
	seeds, err := c.seeds()
	if err != nil {
		return nil, err
	}
	var password []string
	switch {
	case c.given("password-command"):
		password = []string{"--password-command", c.command}
	case c.given("password-file"):
		password = []string{"--password-file", absolute(c.file)}
	case c.asksForPassword(seeds):
		password = []string{"--askpass"}
	}
	return slices.Concat(c.where(seeds), c.optionFlags(seeds, database{number: db}, password)), nil
}

// Line returns the flags that lead to the same servers and databases, as words of a shell
// command. They do not depend on the environment, and have neither a password nor what
// finds one. Line returns "" if no shell command can have the flags.
func (c *Flags) Line() (string, error) {
	seeds, err := c.seeds()
	if err != nil {
		return "", err
	}
	where := c.where(seeds)
	if len(where) == 0 {
		where = []string{"-u", seeds[0].url(false)}
	}
	hasPassword := slices.ContainsFunc(passwordWays, c.given)
	if c.context == "" {
		hasPassword = hasPassword || slices.ContainsFunc(seeds, func(e endpoint) bool { return e.pass != "" })
	}
	var password []string
	if hasPassword {
		password = []string{"--askpass"}
	}
	db := database{number: seeds[0].db, all: c.db.all}
	line, _ := shell.Line(slices.Concat(where, c.optionFlags(seeds, db, password))...)
	return line, nil
}

// optionFlags returns the flags beside those with the addresses of the servers.
func (c *Flags) optionFlags(seeds []endpoint, db database, password []string) []string {
	e := seeds[0]
	var flags []string
	if c.context == "" && len(c.redlock) == 0 && e.user != "" {
		flags = append(flags, "--user", e.user)
	} else if c.context != "" && c.user != "" {
		flags = append(flags, "--user", c.user)
	}
	flags = append(flags, password...)
	number := db.number != 0
	if len(c.redlock) > 0 || c.context != "" {
		number = c.given("db")
	}
	if number || db.all {
		flags = append(flags, "-n", db.String())
	}
	if e.tls && len(c.sentinels) > 0 && c.context == "" || c.security.tls && c.context != "" {
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
func (c *Flags) where(seeds []endpoint) []string {
	var flags []string
	switch e := seeds[0]; {
	case len(c.redlock) > 0:
		for _, e := range seeds {
			flags = append(flags, "--redlock", strings.ReplaceAll(e.url(true), ",", "%2C"))
		}
		return flags
	case c.context != "":
		flags = append(flags, "--context", c.context)
	case len(c.sentinels) > 0:
		for _, addr := range c.sentinelAddresses() {
			flags = append(flags, "--sentinel", addr)
		}
		flags = append(flags, "--master", c.master)
		if c.sentinelUser != "" {
			flags = append(flags, "--sentinel-user", c.sentinelUser)
		}
		if c.sentinelTLS.set {
			flags = append(flags, "--sentinel-tls="+c.sentinelTLS.String())
		}
		return flags
	case e.network == "unix":
		flags = append(flags, "--socket", absolute(e.addr))
	case c.addressGiven() || e.tls || os.Getenv("LOCKTOP_URL") != "" || os.Getenv("REDIS_URL") != "":
		flags = append(flags, "-u", e.url(false))
	}
	if c.cluster {
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
	for _, e := range seeds {
		if e.pass != "" && e.pass != os.Getenv("REDISCLI_AUTH") {
			return true
		}
	}
	return false
}

// absolute returns the absolute path of a file if possible, and path otherwise.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// RedisCLI returns the flags, except address and database, with which redis-cli
// connects to the servers of c.
func (c *Flags) RedisCLI() []string {
	seeds, err := c.seeds()
	if err != nil {
		return nil
	}
	var flags []string
	if user := c.userOf(seeds[0]); user != "" {
		flags = append(flags, "--user", user)
	}
	if seeds[0].pass != "" && seeds[0].pass != os.Getenv("REDISCLI_AUTH") || c.rotates() {
		flags = append(flags, "--askpass")
	}
	if seeds[0].tls {
		flags = append(append(flags, "--tls"), c.security.flags(false)...)
	}
	return flags
}

// userOf returns the ACL user of the connections to e; "" is the default user.
func (c *Flags) userOf(e endpoint) string {
	if c.secret == nil {
		return e.user
	}
	now, _ := c.secret.last()
	return now.withUser(e.user).user
}

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
