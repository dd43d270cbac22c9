package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"
)

// connection is what the connection flags say.
type connection struct {
	url, host, socket string
	port              uint16
	user, pass        string
	askPass           bool
	db                int
	security          security
	timeout           time.Duration

	given func(flag string) bool
}

// flags returns the connection flags, named as redis-cli users know them.
func (c *connection) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Connection", pflag.ContinueOnError)
	set.SortFlags = false
	set.StringVarP(&c.url, "url", "u", "", "`address` like redis[s]://user:pass@host:port/db or unix:///path")
	set.StringVarP(&c.host, "host", "H", "127.0.0.1", "server `name` or address")
	set.Uint16VarP(&c.port, "port", "p", 6379, "server `port`")
	set.StringVarP(&c.socket, "socket", "s", "", "unix socket `path`, instead of host and port")
	set.StringVarP(&c.pass, "pass", "a", "", "`password`; others can read it in the process list")
	set.BoolVar(&c.askPass, "askpass", false, "ask for the password, without echo")
	set.StringVar(&c.user, "user", "", "ACL user `name`")
	set.IntVarP(&c.db, "db", "n", 0, "database `number`")
	c.security.addTo(set)
	set.DurationVar(&c.timeout, "timeout", 2*time.Second, "longest `wait` for a connection or a reply")
	c.given = set.Changed
	return set
}

// target is a server that answers.
type target struct {
	rdb   *redis.Client
	db    int
	title string // where it is, free of credentials
	close func()
}

// dial connects as the flags and the environment say, and makes sure that the
// server answers and that the user is the one that was named: a refused
// password is an error, never a reason to go on as the default user.
func (p *program) dial(ctx context.Context, c *connection) (*target, error) {
	if c.askPass {
		if c.given("pass") {
			return nil, misuse("", "--pass and --askpass contradict each other")
		}
		pass, err := p.askPassword(ctx)
		if err != nil {
			return nil, err
		}
		c.pass = pass
	}
	where, err := c.resolve()
	if err != nil {
		return nil, err
	}
	o, err := c.options(where)
	if err != nil {
		return nil, err
	}
	p.warn(c, where)
	rdb := redis.NewClient(o)
	if err := answers(ctx, rdb, c.timeout); err != nil {
		return nil, errors.Join(noConnection(where, err, c.timeout), rdb.Close())
	}
	return &target{
		rdb:   rdb,
		db:    where.db,
		title: where.title() + c.security.title(),
		close: func() { _ = rdb.Close() },
	}, nil
}

// options are those of a client that looks on: few connections, no retries that
// hide trouble, and nothing said to the server that an ACL might forbid.
func (c *connection) options(e endpoint) (*redis.Options, error) {
	o := &redis.Options{
		Network:               e.network,
		Addr:                  e.addr,
		Username:              e.user,
		Password:              e.pass,
		DB:                    e.db,
		OnConnect:             introduce,
		DialTimeout:           c.timeout,
		ReadTimeout:           c.timeout,
		WriteTimeout:          c.timeout,
		ContextTimeoutEnabled: true,
		MaxRetries:            1, // for a connection that died in the pool
		DialerRetries:         1,
		PoolSize:              4,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
	if !e.tls {
		return o, c.security.unused(c.given)
	}
	config, err := c.security.config()
	o.TLSConfig = config
	return o, err
}

// introduce names the connection for the operator of the server. Where the ACL
// does not allow that, it stays nameless.
func introduce(ctx context.Context, cn *redis.Conn) error {
	err := cn.ClientSetName(ctx, "locktop").Err()
	if _, said := errors.AsType[redis.Error](err); said {
		return nil
	}
	return err
}

// answers waits for the server's time: nothing works for a user who may not even
// ask for that.
func answers(ctx context.Context, rdb *redis.Client, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return rdb.Time(ctx).Err()
}

// warn names what is unsafe about a connection, before it is made.
func (p *program) warn(c *connection, e endpoint) {
	if c.given("pass") {
		p.notes.warning("a password on the command line can be read by every user of this machine: use --askpass or REDISCLI_AUTH")
	}
	if c.security.insecure {
		p.notes.warning("--insecure: the server's certificate is not verified")
	}
	if e.pass != "" && !e.tls && !e.local() {
		p.notes.warning("the password travels to %s unencrypted: use --tls or rediss://", e)
	}
}

// noConnection is the fault of a server that cannot be used, with a hint where
// the error tells what to do. It says of the error what the system or the
// server said, not what the libraries put around it.
func noConnection(e endpoint, err error, timeout time.Duration) *fault {
	f := &fault{code: exitNoConnect}
	said, fromServer := errors.AsType[redis.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		f.err = err
		return f
	case fromServer:
		err = said
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %v", timeout)
	}
	f.err = fmt.Errorf("connect %s: %w", e, err)
	f.hint = hintFor(e, err)
	return f
}

func hintFor(e endpoint, err error) string {
	switch {
	case refused(err):
		return "the user or the password is wrong, or the ACL forbids it: see --user, --askpass and REDISCLI_AUTH"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return "is the server running there? `locktop demo` needs none"
	case certificate(err):
		return "--cacert names the authority to trust, --sni the name on the certificate"
	case (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && !e.tls:
		return "does the server expect TLS? try --tls or rediss://"
	default:
		return ""
	}
}

// refused reports whether the server is there and does not let us in.
func refused(err error) bool {
	return redis.IsAuthError(err) || redis.IsPermissionError(err)
}
