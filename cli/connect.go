package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"

	"locktop/humanize"
	"locktop/keyspace/inspect"
)

// connFlags holds the values of the connection flags.
type connFlags struct {
	context           string // name in the configuration file
	contextURL        string // URL of the context
	url, host, socket string
	port              uint16
	user, pass        string
	askPass           bool
	db                database
	topologyFlags
	security tlsFlags
	timeout  time.Duration

	given func(flag string) bool
}

// flags returns the connection flags, with the names that redis-cli uses.
func (c *connFlags) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Connection", pflag.ContinueOnError)
	set.SortFlags = false
	set.StringVarP(&c.url, "url", "u", "", "`address` like redis[s]://user:pass@host:port/db or unix:///path")
	set.StringVar(&c.context, "context", "", "`name` of a context in locktop/config.yaml, which says where and how")
	set.StringVarP(&c.host, "host", "H", "127.0.0.1", "server `name` or address")
	set.Uint16VarP(&c.port, "port", "p", 6379, "server `port`")
	set.StringVarP(&c.socket, "socket", "s", "", "unix socket `path`, instead of host and port")
	set.StringVarP(&c.pass, "pass", "a", "", "`password`; others can read it in the process list")
	set.BoolVar(&c.askPass, "askpass", false, "ask for the password, without echo")
	set.StringVar(&c.user, "user", "", "ACL user `name`")
	set.VarP(&c.db, "db", "n", "database `number`, or all")
	c.security.addTo(set)
	c.topologyFlags.addTo(set)
	set.DurationVar(&c.timeout, "timeout", 2*time.Second, "longest `wait` for a connection or a reply")
	c.given = set.Changed
	return set
}

// connectReadOnly applies the context, checks the selection and connects, for a
// command that only reads.
func (p *program) connectReadOnly(ctx context.Context, c *connFlags, s *selection) (*target, error) {
	if err := c.configure(s, nil, nil); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	s.databases = c.db.all
	return p.connect(ctx, c)
}

// connect connects by the flags and the environment. It makes sure that a server
// answers and that the user is the one in the flags: a rejected password is an
// error, and never a reason to continue as the default user.
func (p *program) connect(ctx context.Context, c *connFlags) (*target, error) {
	if err := c.topologyFlags.check(c.given); err != nil {
		return nil, err
	}
	if err := p.fillPassword(ctx, c); err != nil {
		return nil, err
	}
	seeds, err := c.seeds()
	if err != nil {
		return nil, err
	}
	for _, e := range seeds {
		if _, err := c.options(e); err != nil {
			return nil, err
		}
		p.warn(c, e)
	}
	return c.newTarget(ctx, seeds)
}

// newTarget opens the servers that the seeds lead to. It writes no messages.
func (c *connFlags) newTarget(ctx context.Context, seeds []endpoint) (*target, error) {
	v := &servers{connect: c.client, locate: c.locator(seeds)}
	t := &target{
		many:    c.mode() != "" || c.db.all,
		fleet:   inspect.MultiOptions{Mode: c.mode(), Redlock: len(c.redlock) > 1},
		servers: v,
		timeout: c.timeout,
		close:   v.close,
	}
	if c.cluster {
		t.cluster = inspect.NewCluster(func(addr string) (redis.UniversalClient, error) {
			e := seeds[0]
			e.network, e.addr = "tcp", addr
			return v.client(e)
		})
	}
	if err := t.ping(ctx, c.timeout, seeds[0]); err != nil {
		v.close()
		return nil, err
	}
	t.title = c.title(seeds) + c.security.title()
	return t, nil
}

// fillPassword asks for the password if --askpass is set.
func (p *program) fillPassword(ctx context.Context, c *connFlags) error {
	if !c.askPass {
		return nil
	}
	if c.given("pass") {
		return usageErrorf("", "--pass and --askpass contradict each other")
	}
	pass, err := p.askPassword(ctx)
	c.pass = pass
	return err
}

// seeds returns the servers that the flags name.
func (c *connFlags) seeds() ([]endpoint, error) {
	if len(c.redlock) == 0 {
		e, err := c.resolve()
		return []endpoint{e}, err
	}
	var all []endpoint
	for _, raw := range c.redlock {
		e, err := parseURL("--redlock", raw)
		if err != nil {
			return nil, err
		}
		if e, err = c.complete(e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// locator returns a function that finds the servers from the seeds.
func (c *connFlags) locator(seeds []endpoint) func(context.Context, *servers) ([]endpoint, error) {
	locate := fixed(seeds)
	switch {
	case c.cluster:
		locate = inCluster(seeds[0], c.preferReplica, c.timeout)
	case len(c.sentinels) > 0:
		locate = c.bySentinel(seeds[0])
	}
	if c.db.all {
		locate = inAllDatabases(locate)
	}
	return locate
}

// ping makes sure that one of the servers answers and makes this server the
// server of t.
func (t *target) ping(ctx context.Context, timeout time.Duration, seed endpoint) error {
	where, err := t.locate(ctx, timeout)
	if err != nil {
		if _, ours := errors.AsType[*exitError](err); ours {
			return err
		}
		return noConnection(seed, err, timeout)
	}
	first, err := firstAnswer(where, func(e endpoint) (endpoint, error) {
		rdb, err := t.servers.client(e)
		if err == nil {
			if err = answers(ctx, rdb, timeout); err != nil {
				err = noConnection(e, err, timeout)
			}
		}
		return e, err
	})
	if err != nil {
		return err
	}
	t.db = first.db
	t.rdb, err = t.servers.client(first)
	return err
}

// locate finds the servers within the timeout.
func (t *target) locate(ctx context.Context, timeout time.Duration) ([]endpoint, error) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.servers.where(within)
}

// firstGrace is how long a server that answered waits for the servers before it.
// While all servers are well, the result does not depend on chance.
const firstGrace = 250 * time.Millisecond

// firstAnswer asks all servers at once. It returns the answer of the first one in
// order that answers within firstGrace of the fastest. If none answers, it returns
// the error of the first server.
func firstAnswer[T, A any](all []T, ask func(T) (A, error)) (A, error) {
	type answer struct {
		n     int
		value A
		err   error
	}
	came := make(chan *answer, len(all))
	for i, one := range all {
		go func() {
			value, err := ask(one)
			came <- &answer{i, value, err}
		}()
	}
	answers := make([]*answer, len(all))
	var grace <-chan time.Time
	for n, over := 0, false; n < len(all); {
		select {
		case a := <-came:
			n++
			answers[a.n] = a
			if a.err == nil && grace == nil {
				grace = time.After(firstGrace)
			}
		case <-grace:
			over = true
		}
		for _, a := range answers {
			if a == nil && !over {
				break
			}
			if a != nil && a.err == nil {
				return a.value, nil
			}
		}
	}
	return answers[0].value, answers[0].err
}

// title names the servers for people.
func (c *connFlags) title(seeds []endpoint) string {
	switch c.mode() {
	case "sentinel":
		return "master " + c.master + " of " + strings.Join(c.sentinelAddresses(), ", ")
	case "redlock":
		addrs := make([]string, len(seeds))
		for i, e := range seeds {
			addrs[i] = e.addr
		}
		return "redlock of " + strings.Join(addrs, ", ")
	case "cluster":
		return "cluster at " + seeds[0].String()
	}
	if c.db.all {
		return seeds[0].String()
	}
	return seeds[0].title()
}

// client opens a client. It sends nothing yet.
func (c *connFlags) client(e endpoint) (*redis.Client, error) {
	o, err := c.options(e)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// pipelineBuffer is the size of the buffers of a connection in bytes. One pipeline
// should fit.
const pipelineBuffer = 128 << 10

// options returns the options of a client that observes: few connections, no
// retries that hide failures, and no commands that an ACL might reject.
func (c *connFlags) options(e endpoint) (*redis.Options, error) {
	o := &redis.Options{
		Network:               e.network,
		Addr:                  e.addr,
		Username:              e.user,
		Password:              e.pass,
		DB:                    e.db,
		OnConnect:             e.introduce,
		DialTimeout:           c.timeout,
		ReadTimeout:           c.timeout,
		WriteTimeout:          c.timeout,
		ContextTimeoutEnabled: true,
		MaxRetries:            1, // for a connection that broke while idle
		DialerRetries:         1,
		PoolSize:              8,
		PipelinePoolSize:      -1, // none: pipelines use the ordinary connections
		ReadBufferSize:        pipelineBuffer,
		WriteBufferSize:       pipelineBuffer,
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

// introduce sets the name of the connection, for the operator of the server. If the
// ACL rejects the command, the connection has no name.
//
// It never sends CLIENT NO-TOUCH: on Redis 8.0 and Valkey 8.1 the server crashes
// when it looks up a key outside of a command on such a connection (redis#14415,
// valkey#2347).
func (e endpoint) introduce(ctx context.Context, cn *redis.Conn) error {
	_, err := cn.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ClientSetName(ctx, "locktop")
		if e.readonly {
			p.ReadOnly(ctx)
		}
		return nil
	})
	if _, said := errors.AsType[redis.Error](err); said {
		return nil
	}
	return err
}

// answers waits for the reply to TIME. A permission error or an unknown command
// also proves that the server accepts the user.
func answers(ctx context.Context, rdb *redis.Client, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := rdb.Time(ctx).Err()
	forbidden := redis.IsPermissionError(err) && strings.Contains(err.Error(), "'time'")
	if forbidden || redis.HasErrorPrefix(err, "unknown command") {
		return nil
	}
	return err
}

// warn reports what is unsafe about a connection, before it is opened.
func (p *program) warn(c *connFlags, e endpoint) {
	if c.given("pass") {
		p.notes.warning("a password on the command line can be read by every user of this machine: use --askpass or REDISCLI_AUTH")
	}
	if len(c.redlock) == 1 {
		p.notes.warning("--redlock is given once: the locks of one server are no Redlocks; give it once for each server")
	}
	if c.security.insecure {
		p.notes.warning("--insecure: the server's certificate is not verified")
	}
	if e.pass != "" && !e.tls && !e.local() {
		p.notes.warning("the password travels to %s unencrypted: use --tls or rediss://", e)
	}
}

// noConnection returns the exit error for a server that cannot be used, with a hint
// if the error permits one. It quotes the system or the server, without the text
// that libraries add.
func noConnection(e endpoint, err error, timeout time.Duration) *exitError {
	f := &exitError{code: exitNoConnect}
	said, fromServer := errors.AsType[redis.Error](err)
	if asked, ok := errors.AsType[*sentinelError](err); ok {
		f.err = asked
		if redis.HasErrorPrefix(asked.err, "unknown command") || strings.Contains(asked.err.Error(), "unknown command") {
			f.hint = "that is no Sentinel; the port of a Sentinel is 26379, if nobody has chosen another"
		}
		return f
	}
	if strings.HasPrefix(err.Error(), "redis: can't parse") {
		f.err = fmt.Errorf("connect %s: what answers there does not speak the protocol of Redis", e)
		f.hint = "is that the right port?"
		return f
	}
	switch {
	case errors.Is(err, context.Canceled):
		f.err = err
		return f
	case fromServer:
		err = said
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", humanize.Setting(timeout))
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
	case e.tls && strings.HasPrefix(err.Error(), "no answer within"):
		return "does the server speak TLS there? try it without --tls, or with redis://"
	case (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && !e.tls:
		return "does the server expect TLS? try --tls or rediss://"
	default:
		return ""
	}
}

// refused reports whether the server answers but rejects the user.
func refused(err error) bool {
	return redis.IsAuthError(err) || redis.IsPermissionError(err)
}
