package connect

import (
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Arguments returns the flags that lead to database db of the same servers, without a
// password.
func (c *Flags) Arguments(db int) ([]string, error) {
	seeds, err := c.seeds()
	if err != nil {
		return nil, err
	}
	e := seeds[0]
	flags := c.where(seeds)
	if c.context == "" && len(c.redlock) == 0 && e.user != "" {
		flags = append(flags, "--user", e.user)
	} else if c.context != "" && c.user != "" {
		flags = append(flags, "--user", c.user)
	}
	switch {
	case c.given("password-command"):
		flags = append(flags, "--password-command", c.command)
	case c.given("password-file"):
		flags = append(flags, "--password-file", absolute(c.file))
	case c.asksForPassword(seeds):
		flags = append(flags, "--askpass")
	}
	number := db != 0
	if len(c.redlock) > 0 || c.context != "" {
		number = c.given("db")
	}
	if number {
		flags = append(flags, "-n", strconv.Itoa(db))
	}
	if e.tls && len(c.sentinels) > 0 && c.context == "" || c.security.tls && c.context != "" {
		flags = append(flags, "--tls")
	}
	flags = append(flags, c.security.flags()...)
	if c.given("ssh") {
		flags = append(flags, "--ssh", c.ssh)
	}
	if c.given("timeout") {
		flags = append(flags, "--timeout", c.timeout.String())
	}
	return flags, nil
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

// flags returns the TLS flags, with absolute paths.
func (s *tlsFlags) flags() []string {
	var flags []string
	for _, f := range [][2]string{{"--cacert", s.cacert}, {"--cert", s.cert}, {"--key", s.key}} {
		if f[1] != "" {
			flags = append(flags, f[0], absolute(f[1]))
		}
	}
	if s.sni != "" {
		flags = append(flags, "--sni", s.sni)
	}
	if s.insecure {
		flags = append(flags, "--insecure")
	}
	return flags
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
	user := seeds[0].user
	if c.secret != nil {
		now, _ := c.secret.last()
		user = now.withUser(user).user
	}
	if user != "" {
		flags = append(flags, "--user", user)
	}
	if seeds[0].pass != "" && seeds[0].pass != os.Getenv("REDISCLI_AUTH") || c.rotates() {
		flags = append(flags, "--askpass")
	}
	if seeds[0].tls {
		flags = append(append(flags, "--tls"), c.security.flags()...)
	}
	return flags
}
