// Package connect turns connection flags, environment variables and the configuration
// file into clients of Redis servers: addresses, TLS, credentials, Sentinels, clusters.
package connect

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Flags holds the values of the connection flags. FlagSet must be called before all
// other methods, and the flag set must be parsed.
type Flags struct {
	origin            string // the flag of url; "" is --url
	context           string // name in the configuration file
	of                contextValues
	url, host, socket string
	port              uint16
	user, pass        string
	askPass           bool
	command, file     string // that print or have a password that may change
	db                database
	topologyFlags
	ssh       string // host that reaches the servers; "": none is needed
	security  tlsFlags
	timeout   time.Duration
	debugFile string

	elsewhere bool                    // see Elsewhere
	permit    func(addr string) error // see Only; nil: every address is permitted

	given func(flag string) bool
}

// FlagSet returns the connection flags, with the names that redis-cli uses.
func (c *Flags) FlagSet() *pflag.FlagSet {
	set := pflag.NewFlagSet("Connection", pflag.ContinueOnError)
	set.SortFlags = false
	set.StringVarP(&c.url, "url", "u", "", "`address` like redis[s]://user:pass@host:port/db or unix:///path")
	set.StringVar(&c.context, "context", "", "`name` of a context in locktop/config.yaml, with address and options")
	set.StringVarP(&c.host, "host", "H", "127.0.0.1", "server `name` or address")
	set.Uint16VarP(&c.port, "port", "p", 6379, "server `port`")
	set.StringVarP(&c.socket, "socket", "s", "", "unix socket `path`, instead of host and port")
	set.StringVarP(&c.pass, "pass", "a", "", "`password`; others can read it in the process list")
	set.BoolVar(&c.askPass, "askpass", false, "ask for the password, without echo")
	set.StringVar(&c.command, "password-command", "", "`command` that prints the password, or JSON; each new connection runs it")
	set.StringVar(&c.file, "password-file", "", "`file` with the password, or JSON; each new connection reads it")
	set.StringVar(&c.user, "user", "", "ACL user `name`")
	set.FuncP("db", "n", "database `number`, or all", c.db.Set)
	c.security.addTo(set)
	c.topologyFlags.addTo(set)
	set.StringVar(&c.ssh, "ssh", "", "`[user@]host` from which to reach the servers, with the ssh of this machine")
	set.DurationVar(&c.timeout, "timeout", 2*time.Second, "maximum `time` to wait for a connection or a reply")
	set.StringVar(&c.debugFile, "debug", "", "append to this `file` what locktop reads, how long it takes and what is refused; no keys, no values")
	c.given = set.Changed
	return set
}

// WithURL returns a copy of the flags with another value of --url. Errors name origin, the flag
// that has it.
func (c *Flags) WithURL(origin, url string) *Flags {
	other := c.set("url")
	other.origin, other.url, other.Redlock = origin, url, nil
	return other
}

// WithContext returns a copy of the flags with another value of --context.
func (c *Flags) WithContext(name string) *Flags {
	other := c.set("context")
	other.context = name
	return other
}

// Elsewhere returns flags for a server that has nothing to do with the one of c. They have the
// certificates and the time-out of c. Everything else comes from url, the value of the flag origin:
// the password of one server never goes to another.
func (c *Flags) Elsewhere(origin, url string) *Flags {
	other := &Flags{origin: origin, url: url, security: c.security, timeout: c.timeout, debugFile: c.debugFile, elsewhere: true}
	other.security.tls = false
	other.given = func(flag string) bool { return flag == "url" }
	return other
}

// Only returns a copy of the flags that connects to no address, host:port, for which permit
// returns an error, also if a cluster or a Sentinel announces it. [Session.Open] then returns
// this error.
func (c *Flags) Only(permit func(addr string) error) *Flags {
	other := *c
	other.permit = permit
	return &other
}

// AsCluster returns a copy of the flags with --cluster.
func (c *Flags) AsCluster() *Flags {
	other := c.set("cluster")
	other.Cluster = true
	return other
}

// Server returns the host:port and the database of the flags. It returns an error if they
// name a unix socket.
func (c *Flags) Server() (addr string, db int, err error) {
	e, err := c.endpoint()
	if err != nil {
		return "", 0, err
	}
	if c.ssh != "" {
		return "", 0, usagef("name an address that they reach", "agents do not use --ssh")
	}
	if e.network == "unix" {
		return "", 0, usagef("name a host and a port", "%s cannot be reached from another machine", e)
	}
	return e.addr, e.db, nil
}

// WithDatabase returns a copy of the flags with another value of --db: a number, or
// "all".
func (c *Flags) WithDatabase(db string) (*Flags, error) {
	other := c.set("db")
	return other, other.db.Set(db)
}

// set returns a copy in which a flag counts as given.
func (c *Flags) set(name string) *Flags {
	other := *c
	other.given = func(flag string) bool { return flag == name || c.given(flag) }
	return &other
}

// AllDatabases reports whether --db is "all".
func (c *Flags) AllDatabases() bool { return c.db.all }

// addressGiven reports whether a flag names the address of a server.
func (c *Flags) addressGiven() bool {
	return slices.ContainsFunc([]string{"url", "host", "port", "socket"}, c.given)
}

// database is the value of --db: a number, or "all".
type database struct {
	number int
	all    bool
}

// String returns the value as the flag accepts it.
func (d *database) String() string {
	if d.all {
		return "all"
	}
	return strconv.Itoa(d.number)
}

// Set parses the value of the flag.
func (d *database) Set(s string) error {
	if s == "all" {
		*d = database{all: true}
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return errors.New("neither a number nor all")
	}
	*d = database{number: n}
	return nil
}

// topologyFlags holds the flags that turn one address into several servers.
type topologyFlags struct {
	Cluster                    bool
	Sentinels                  []string // addresses, with or without a port
	master                     string
	sentinelUser, sentinelPass string
	sentinelTLS                *bool    // nil: as the servers
	Redlock                    []string // addresses or URLs of the servers
	PreferReplica              bool
}

func (s *topologyFlags) addTo(set *pflag.FlagSet) {
	set.BoolVar(&s.Cluster, "cluster", false, "connect to all masters of the server's cluster")
	set.StringSliceVar(&s.Sentinels, "sentinel", nil, "`address` of a Sentinel, which names the master; may be repeated")
	set.StringVar(&s.master, "master", "mymaster", "`name` of the master in the configuration of the Sentinels")
	set.StringVar(&s.sentinelUser, "sentinel-user", "", "ACL user `name` at the Sentinels")
	set.StringVar(&s.sentinelPass, "sentinel-pass", "", "`password` of the Sentinels; LOCKTOP_SENTINEL_PASS is not in the process list")
	set.BoolFunc("sentinel-tls", "use TLS with the Sentinels (default: if --tls is set)", func(text string) error {
		on, err := strconv.ParseBool(text)
		s.sentinelTLS = &on
		return err
	})
	set.StringSliceVar(&s.Redlock, "redlock", nil, "`address` or URL of one of the independent servers with Redlocks; may be repeated")
	set.BoolVar(&s.PreferReplica, "prefer-replica", false, "read from replicas, if there are any; their data may be older. Actions read and change the masters")
}

// checkTopology returns an error for flags that contradict each other.
func (c *Flags) checkTopology() error {
	s := &c.topologyFlags
	switch {
	case s.Cluster && len(s.Sentinels) > 0, s.Cluster && len(s.Redlock) > 0, len(s.Sentinels) > 0 && len(s.Redlock) > 0:
		return usagef("", "--cluster, --sentinel and --redlock exclude each other")
	case c.addressGiven() && len(s.Sentinels) > 0:
		return usagef("", "--sentinel already says where: leave out --url, --host, --port and --socket")
	case c.addressGiven() && len(s.Redlock) > 0 && !slices.Contains(s.Redlock, c.url):
		return usagef("", "--redlock already says where: leave out --url, --host, --port and --socket")
	case c.given("sentinel-pass") && s.sentinelPass == "":
		return usagef("is its shell variable set?", "--sentinel-pass is empty")
	case s.sentinelUser != "" && c.sentinelPassword() == "":
		return usagef("--sentinel-pass, LOCKTOP_SENTINEL_PASS, or sentinel_pass of a context", "--sentinel-user without a password")
	case s.PreferReplica && !s.Cluster && len(s.Sentinels) == 0:
		return usagef("", "--prefer-replica needs --cluster or --sentinel, which know the replicas")
	}
	for _, name := range []string{"master", "sentinel-user", "sentinel-pass", "sentinel-tls"} {
		if c.given(name) && len(s.Sentinels) == 0 {
			return usagef("as in --sentinel 10.0.0.1:26379 --master orders", "--%s without --sentinel", name)
		}
	}
	return nil
}

// sentinelPassword returns the password of the Sentinels; "" if they have none.
func (s *topologyFlags) sentinelPassword() string {
	return cmp.Or(s.sentinelPass, os.Getenv("LOCKTOP_SENTINEL_PASS"))
}
