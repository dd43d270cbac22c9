package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// Open connects by the flags, the context and the environment. It makes sure that a
// server answers and that the user is the one in the flags: a rejected password is an
// error, and never a reason to continue as the default user.
//
// The first Open asks for the password if --askpass, or a command or a file, has it.
// Before it connects, Open warns of what is unsafe. If p has a Note, Open waits for a server
// that loads its data or runs a script, for at most [loadingWait].
func (c *Flags) Open(ctx context.Context, p Prompt) (*Target, error) {
	if err := c.checkTopology(); err != nil {
		return nil, err
	}
	if err := cmp.Or(c.openDebug(), c.AskPassword(ctx, p)); err != nil {
		return nil, err
	}
	seeds, err := c.seeds()
	if err != nil {
		return nil, err
	}
	for _, e := range seeds {
		if _, err := optionsOf(c, e); err != nil {
			return nil, err
		}
		if p.Warn != nil {
			c.warn(p.Warn, e)
		}
	}
	if err := c.openSSH(ctx, seeds); err != nil {
		return nil, err
	}
	v := &servers{connect: c.client, locate: c.locator(seeds), clients: make(map[endpoint]inspect.Client)}
	t := &Target{
		Title:   c.title(seeds),
		Many:    c.mode() != "" || c.db.all,
		Multi:   inspect.MultiOptions{Mode: c.mode(), Redlock: len(c.redlock) > 1},
		Timeout: c.timeout,
		flags:   *c,
		seed:    seeds[0],
		servers: v,
	}
	if c.security.insecure {
		t.Title += " (certificate not verified)"
	}
	if c.tunnel != nil {
		t.Title += " through " + c.tunnel.host
	}
	if c.cluster {
		t.Cluster = inspect.NewCluster(func(addr string) (inspect.Client, error) {
			e := seeds[0]
			e.network, e.addr = "tcp", addr
			return v.client(e)
		})
	}
	err = t.pingLoaded(ctx, p.Note)
	if err == nil {
		err = cmp.Or(t.checkPermits(ctx), t.checkVotes(ctx, seeds))
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// checkPermits returns an error if the cluster or the Sentinels announce an address to which
// the flags do not connect.
func (t *Target) checkPermits(ctx context.Context) error {
	if t.flags.permit == nil {
		return nil
	}
	all, _, err := t.announced(ctx)
	for _, node := range all {
		err = cmp.Or(err, t.flags.permit(node.addr))
	}
	return err
}

// openSSH opens the tunnel if the flags have a host for it. The last [Target.Close] closes it.
func (c *Flags) openSSH(ctx context.Context, seeds []endpoint) error {
	host, origin := c.ssh, c.of.origin("ssh")
	if host == "" && !c.given("ssh") {
		return nil
	}
	if err := checkSSHHost(origin, host); err != nil {
		return err
	}
	if seeds[0].network == "unix" {
		return usagef("name a host and a port, as "+host+" reaches them", "%s does not reach a unix socket", origin)
	}
	if c.tunnel == nil || c.tunnel.uses.Load() == 0 {
		opened, err := openTunnel(ctx, host)
		if err != nil {
			return err
		}
		c.tunnel = opened
	}
	c.tunnel.uses.Add(1)
	return nil
}

// seeds returns the servers that the flags name.
func (c *Flags) seeds() ([]endpoint, error) {
	if len(c.redlock) == 0 {
		e, err := c.resolve()
		return []endpoint{e}, err
	}
	var all []endpoint
	for _, raw := range c.redlock {
		e, err := parseAddress("--redlock", raw)
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
func (c *Flags) locator(seeds []endpoint) func(context.Context, *servers) ([]endpoint, error) {
	locate := func(context.Context, *servers) ([]endpoint, error) { return seeds, nil }
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

// Open waits this long for a server that loads its data or runs a script, and asks it again
// after each loadingPoll.
const (
	loadingWait = 5 * time.Minute
	loadingPoll = 200 * time.Millisecond
)

// pingLoaded calls ping until a server answers that neither loads its data nor runs a
// script. It notes once that it waits; without note it does not wait.
func (t *Target) pingLoaded(ctx context.Context, note func(format string, args ...any)) error {
	giveUp := time.Now().Add(loadingWait)
	for noted := false; ; {
		err := t.ping(ctx)
		if note == nil || !isBusy(err) || time.Now().After(giveUp) {
			return err
		}
		if !noted {
			noted = true
			note("%v; waiting for at most %s, Ctrl-C ends it", err, humanize.Setting(loadingWait))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(loadingPoll):
		}
	}
}

// isBusy reports whether a server loads its data or runs a script.
func isBusy(err error) bool {
	return redis.HasErrorPrefix(err, "LOADING") || redis.HasErrorPrefix(err, "BUSY")
}

// ping makes sure that one of the servers answers and makes this server the
// server of t.
func (t *Target) ping(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	where, err := t.servers.where(within)
	if err != nil {
		if _, ours := errors.AsType[*Error](err); ours {
			return err
		}
		return noConnection(t.seed, err, t.Timeout)
	}
	first, err := firstAnswer(where, func(e endpoint) (endpoint, error) {
		rdb, err := t.servers.client(e)
		if err == nil {
			if err = t.ask(ctx, rdb); err != nil {
				err = noConnection(e, err, t.Timeout)
			}
		}
		return e, err
	})
	if err != nil {
		return err
	}
	t.DB = first.db
	t.Client, err = t.servers.client(first)
	return err
}

// firstGrace is how long a server that answered waits for the servers before it.
// While all servers are well, the result does not depend on chance.
const firstGrace = 250 * time.Millisecond

// firstAnswer asks all servers at the same time. It returns the answer of the first one in
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

// Title returns the address of the flags without credentials, as in [Target]. It sends
// nothing.
func (c *Flags) Title() (string, error) {
	if err := c.checkTopology(); err != nil {
		return "", err
	}
	seeds, err := c.seeds()
	if err != nil {
		return "", err
	}
	return c.title(seeds), nil
}

// title names the servers for people.
func (c *Flags) title(seeds []endpoint) string {
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
func (c *Flags) client(e endpoint) (inspect.Client, error) {
	o, err := optionsOf(c, e)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(o)
	if c.debug != nil {
		rdb.AddHook(debugHook{c.debug, e.String()})
	}
	return rdb, nil
}

// pipelineBuffer is the size of the buffers of a connection in bytes. One pipeline
// should fit.
const pipelineBuffer = 128 << 10

// optionsOf returns the options of a client that observes: few connections, no
// retries that hide failures, and no commands that an ACL might reject. Its connections go
// only to addresses that the flags permit. It is no method, because a package that mentions
// a type also mentions the types of its methods.
func optionsOf(c *Flags, e endpoint) (*redis.Options, error) {
	o, err := anyOptions(c, e)
	if err != nil || c.permit == nil {
		return o, err
	}
	dial := o.Dialer
	if dial == nil {
		dial = redis.NewDialer(o)
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := c.permit(addr); err != nil {
			return nil, &Error{Err: err}
		}
		return dial(ctx, network, addr)
	}
	return o, nil
}

// anyOptions returns the options of a client that connects to any address.
func anyOptions(c *Flags, e endpoint) (*redis.Options, error) {
	o := &redis.Options{
		Network:               e.network,
		Addr:                  e.addr,
		Username:              e.user,
		Password:              e.pass,
		DB:                    e.db,
		OnConnect:             func(ctx context.Context, cn *redis.Conn) error { return e.setUp(ctx, cn) },
		DialTimeout:           c.timeout,
		ReadTimeout:           c.timeout,
		WriteTimeout:          c.timeout,
		ContextTimeoutEnabled: true,
		MaxRetries:            -1, // none: a reply may take one timeout, not two
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
	if c.tunnel != nil {
		o.Dialer = c.tunnel.dial
	}
	if c.secret != nil {
		o.StreamingCredentialsProvider = userSecret{c.secret, e.user}
	}
	if !e.tls && !c.security.tls && (len(c.sentinels) == 0 || !c.sentinelsUseTLS()) {
		return o, c.security.checkUnused(c.given)
	}
	if !e.tls {
		return o, nil
	}
	config, err := c.security.config()
	if err == nil && c.tunnel != nil {
		o.Dialer = overTLS(o.Dialer, config)
	}
	o.TLSConfig = config
	return o, err
}

// overTLS returns a dialer that uses TLS on the connections of dial.
func overTLS(dial dialer, config *tls.Config) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		own := config.Clone()
		if own.ServerName == "" {
			own.ServerName, _, _ = net.SplitHostPort(addr)
		}
		return tls.Client(c, own), nil
	}
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// setUp sets the name of the connection, for the operator of the server. If the
// ACL rejects the command, the connection has no name.
//
// It never sends CLIENT NO-TOUCH: on Redis 8.0 and Valkey 8.1 the server crashes
// when it looks up a key outside of a command on such a connection (redis#14415,
// valkey#2347).
func (e endpoint) setUp(ctx context.Context, cn redis.Cmdable) error {
	_, err := cn.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ClientSetName(ctx, keyspace.ConnectionName)
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

// askGrace is by how much ask exceeds the timeout, so that the timeout of the connection
// ends it, whose error says more.
const askGrace = 50 * time.Millisecond

// ask waits for the reply to PING. A permission error, an unknown command, or a replica
// without its master also proves that the server accepts the user.
func (t *Target) ask(ctx context.Context, rdb inspect.Client) error {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout+askGrace)
	defer cancel()
	err := rdb.Ping(ctx).Err()
	forbidden := redis.IsPermissionError(err) && strings.Contains(err.Error(), "'ping'")
	if forbidden || redis.HasErrorPrefix(err, "unknown command") || redis.HasErrorPrefix(err, "MASTERDOWN") {
		return nil
	}
	return err
}

// namesPassword reports whether an address has a password.
func namesPassword(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	_, named := u.User.Password()
	return named
}

// warn reports what is unsafe about a connection.
func (c *Flags) warn(warning func(format string, args ...any), e endpoint) {
	if c.given("pass") || c.given("url") && namesPassword(c.url) || c.given("redlock") && slices.ContainsFunc(c.redlock, namesPassword) {
		warning("a password on the command line can be read by every user of this machine: use --askpass or REDISCLI_AUTH")
	}
	if c.given("sentinel-pass") {
		warning("the password of --sentinel-pass can be read by every user of this machine: use LOCKTOP_SENTINEL_PASS or a context")
	}
	if len(c.redlock) == 1 {
		warning("--redlock is given once: the locks of one server are no Redlocks; give it once for each server")
	}
	if c.security.insecure {
		warning("%s: the server's certificate is not verified", c.security.of.origin("insecure"))
	}
	_, _, file := c.passwordSource()
	for _, path := range []string{file, c.security.key} {
		if info, err := os.Stat(path); err == nil && allCanRead(info) {
			warning("%s", withChmod(path+" can be read by every user of this machine", path))
		}
	}
	if (e.pass != "" || c.rotates()) && !e.tls && !e.local() && c.ssh == "" {
		warning("the password travels to %s unencrypted: use --tls or rediss://", e)
	}
}
