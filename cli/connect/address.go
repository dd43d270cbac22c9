package connect

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// endpoint is an address with a database and the user to connect as.
type endpoint struct {
	network, addr string // tcp and host:port, or unix and a path
	user, pass    string
	db            int
	tls           bool
	readonly      bool // a replica in a cluster, which needs READONLY before it answers
}

// String returns the address without user, password and database.
func (e endpoint) String() string {
	switch {
	case e.network == "unix":
		return "unix://" + e.addr
	case e.tls:
		return "rediss://" + e.addr
	default:
		return "redis://" + e.addr
	}
}

// title returns the address with the database.
func (e endpoint) title() string {
	if e.network == "unix" {
		return e.String() + "?db=" + strconv.Itoa(e.db)
	}
	return e.String() + "/" + strconv.Itoa(e.db)
}

// local reports whether the connection stays on this machine.
func (e endpoint) local() bool {
	if e.network == "unix" {
		return true
	}
	host, _, _ := net.SplitHostPort(e.addr) // "" with an error
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// endpoint merges the flags for one server with the environment; flags win. An address in the flags
// replaces all parts of an address in the environment, so that the password of one
// server never goes to another.
func (c *Flags) endpoint() (endpoint, error) {
	e, err := c.address()
	if err != nil {
		return endpoint{}, err
	}
	return c.complete(e)
}

// Remote returns the address of the flags if it is not on this machine, "" otherwise.
func (c *Flags) Remote() (string, error) {
	e, err := c.endpoint()
	switch {
	case err != nil:
		return "", err
	case c.ssh != "":
		return e.String() + " behind " + c.ssh, nil
	case e.local():
		return "", nil
	}
	return e.String(), nil
}

// complete adds the user, password, database and TLS of the flags and the environment.
func (c *Flags) complete(e endpoint) (endpoint, error) {
	if c.context != c.of.context {
		return endpoint{}, usagef("name the server with -u, --cluster, --sentinel or --redlock", "this command does not use --context")
	}
	if c.user != "" {
		e.user = c.user
	}
	if c.given("db") {
		e.db = c.db.number
	}
	e.tls = e.tls || c.security.tls
	switch {
	case c.given("pass") && c.pass == "":
		return endpoint{}, usagef("is its shell variable set?", "--pass is empty")
	case c.rotates():
		e.pass = ""
	case c.pass != "":
		e.pass = c.pass
	case e.pass == "" && !c.elsewhere:
		e.pass = os.Getenv("REDISCLI_AUTH")
	}
	if e.user != "" && e.pass == "" && !c.askPass && !c.rotates() {
		// Redis would continue as the default user.
		return endpoint{}, usagef("--askpass, --password-command, REDISCLI_AUTH, or user:password@ in the URL", "a user is named, but no password")
	}
	if e.db < 0 {
		return endpoint{}, usagef("", "--db: databases count from 0")
	}
	return e, nil
}

// address returns the address from the flags, the context, the environment, or the
// default Redis on this machine, in this order.
func (c *Flags) address() (endpoint, error) {
	tcp := c.given("host") || c.given("port")
	switch {
	case c.given("url") && (tcp || c.given("socket")):
		return endpoint{}, usagef("", "--url already says where: leave out --host, --port and --socket")
	case c.given("socket") && tcp:
		return endpoint{}, usagef("", "--socket already says where: leave out --host and --port")
	case c.given("url") && c.origin == "--redlock":
		return parseAddress(c.origin, c.url)
	case c.given("url"):
		return parseURL(cmp.Or(c.origin, "--url"), c.url)
	case c.given("socket"):
		return endpoint{network: "unix", addr: c.socket}, nil
	case c.of.has("url"):
		return parseURL("the "+c.of.origin("url"), c.url)
	}
	for _, name := range []string{"LOCKTOP_URL", "REDIS_URL"} {
		if raw := os.Getenv(name); raw != "" && !tcp {
			return parseURL(name, raw)
		}
	}
	return endpoint{network: "tcp", addr: net.JoinHostPort(c.host, strconv.Itoa(int(c.port)))}, nil
}

// parseAddress parses a URL as parseURL does, or a host with or without a port.
func parseAddress(origin, raw string) (endpoint, error) {
	if raw == "" || strings.ContainsAny(raw, "/@?#%") {
		return parseURL(origin, raw)
	}
	addr := withPort(raw, "6379")
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return endpoint{}, invalidURL(origin, "is not a Redis address")
	}
	return parseURL(origin, "redis://"+addr)
}

// withPort returns the address of a host, with a port if it has none. An IPv6 address may be
// without brackets.
func withPort(addr, port string) string {
	if ip, err := netip.ParseAddr(strings.Trim(addr, "[]")); err == nil {
		return net.JoinHostPort(ip.String(), port)
	}
	if !strings.Contains(addr, ":") {
		return addr + ":" + port
	}
	return addr
}

// parseURL parses redis://user:pass@host:port/db, rediss:// for TLS, or
// unix://user:pass@/path?db=n. Its errors quote nothing of the URL, because any part
// of a malformed URL may be the password. They name origin, the flag or variable of
// the URL.
func parseURL(origin, raw string) (endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return endpoint{}, invalidURL(origin, "is not a Redis address")
	}
	e := endpoint{network: "tcp", tls: u.Scheme == "rediss", user: u.User.Username()}
	e.pass, _ = u.User.Password()

	db := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "redis", "rediss":
		e.addr = net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "6379"))
	case "unix":
		if u.Host != "" || u.Path == "" {
			return endpoint{}, invalidURL(origin, "has no path of a socket")
		}
		e.network, e.addr, db = "unix", u.Path, ""
	default:
		return endpoint{}, invalidURL(origin, "is not a Redis address")
	}
	return e.withDatabase(origin, db, u.RawQuery)
}

// withDatabase sets the database from the path or the query of a URL. The query may
// contain only db.
func (e endpoint) withDatabase(origin, path, query string) (endpoint, error) {
	q, err := url.ParseQuery(query)
	if err != nil || len(q) > 1 || len(q) == 1 && !q.Has("db") {
		return endpoint{}, invalidURL(origin, "has a parameter that is not db")
	}
	number := cmp.Or(q.Get("db"), path)
	if number == "" {
		return e, nil
	}
	if e.db, err = strconv.Atoi(number); err != nil || e.db < 0 {
		return endpoint{}, invalidURL(origin, "has a database that is not a number")
	}
	return e, nil
}

func invalidURL(origin, what string) error {
	return usagef("like redis://user:password@host:6379/0, rediss://host or unix:///path; in a password, write special characters as %XX",
		"%s %s", origin, what)
}
