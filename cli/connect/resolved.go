package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"locktop/keyspace/inspect"
)

// Resolved is what the flags, the context and the environment say together: which servers, and how
// to connect to them. It does not change.
type Resolved struct {
	flags     *Flags
	seeds     []endpoint // the servers that are named: those of a Redlock, or one
	mode      string     // cluster, sentinel or redlock; "" means one server, or a mode that the server reports
	sentinels []endpoint
	secret    *secret      // nil: the password does not change
	tunnel    *tunnel      // nil: none is needed, or open
	debug     *slog.Logger // nil: --debug is not set
}

// Resolve merges the flags with the context and the environment. It returns an error for flags
// that contradict each other, or that the connections do not use. It asks for no password.
func (c *Flags) Resolve() (*Resolved, error) {
	if err := c.checkTopology(); err != nil {
		return nil, err
	}
	r := &Resolved{flags: c}
	for _, raw := range c.Redlock {
		e, err := parseAddress("--redlock", raw)
		if err == nil {
			e, err = c.complete(e)
		}
		if err != nil {
			return nil, err
		}
		r.mode, r.seeds = "redlock", append(r.seeds, e)
	}
	if r.mode == "" {
		e, err := c.endpoint()
		if err != nil {
			return nil, err
		}
		r.seeds = []endpoint{e}
	}
	switch {
	case c.Cluster:
		r.mode = "cluster"
	case len(c.Sentinels) > 0:
		r.mode = "sentinel"
	}
	useTLS := c.security.tls || c.of.has("url") && strings.HasPrefix(c.url, "rediss:")
	if c.sentinelTLS != nil {
		useTLS = *c.sentinelTLS
	}
	for _, addr := range c.Sentinels {
		r.sentinels = append(r.sentinels, endpoint{
			network: "tcp", addr: withPort(addr, "26379"), user: c.sentinelUser, pass: c.sentinelPassword(), tls: useTLS,
		})
	}
	if !(useTLS && r.mode == "sentinel") && slices.ContainsFunc(r.seeds, func(e endpoint) bool { return !e.tls }) {
		return r, c.security.checkUnused(c.given)
	}
	return r, nil
}

// Name names the servers for people, without credentials.
func (r *Resolved) Name() string {
	addrs := func(all []endpoint) string {
		names := make([]string, len(all))
		for i, e := range all {
			names[i] = e.addr
		}
		return strings.Join(names, ", ")
	}
	switch r.mode {
	case "sentinel":
		return "master " + r.flags.master + " of " + addrs(r.sentinels)
	case "redlock":
		return "redlock of " + addrs(r.seeds)
	case "cluster":
		return "cluster at " + r.seeds[0].String()
	}
	if r.flags.db.all {
		return r.seeds[0].String()
	}
	return r.seeds[0].title()
}

// client opens a client. It sends nothing yet.
func (r *Resolved) client(e endpoint) (inspect.Client, error) {
	o, err := r.options(e)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(o)
	if r.debug != nil {
		rdb.AddHook(debugHook{r.debug, e.String()})
	}
	return rdb, nil
}

// pipelineBuffer is the size of the buffers of a connection in bytes. One pipeline
// should fit.
const pipelineBuffer = 128 << 10

// options returns the options of a client that observes: few connections, no
// retries that hide failures, and no commands that an ACL might reject. Its connections go
// only to addresses that the flags permit.
func (r *Resolved) options(e endpoint) (*redis.Options, error) {
	o := &redis.Options{
		Network:               e.network,
		Addr:                  e.addr,
		Username:              e.user,
		Password:              e.pass,
		DB:                    e.db,
		OnConnect:             func(ctx context.Context, cn *redis.Conn) error { return e.setUp(ctx, cn) },
		DialTimeout:           r.flags.timeout,
		ReadTimeout:           r.flags.timeout,
		WriteTimeout:          r.flags.timeout,
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
	o.Dialer = redis.NewDialer(o)
	if r.tunnel != nil {
		o.Dialer = r.tunnel.dial
	}
	if r.secret != nil {
		o.StreamingCredentialsProvider = userSecret{r.secret, e.user}
	}
	if e.tls {
		config, err := r.flags.security.config()
		if err != nil {
			return nil, err
		}
		if r.tunnel != nil {
			o.Dialer = overTLS(o.Dialer, config)
		}
		o.TLSConfig = config
	}
	if dial := o.Dialer; r.flags.permit != nil {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if err := r.flags.permit(addr); err != nil {
				return nil, &Error{Err: err}
			}
			return dial(ctx, network, addr)
		}
	}
	return o, nil
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

// debugHook writes a line for each connection and each request of a client.
type debugHook struct {
	log    *slog.Logger
	server string
}

func (h debugHook) line(what string, began time.Time, err error, more ...any) {
	more = append(more, "server", h.server, "ms", float64(time.Since(began).Microseconds())/1000)
	if err != nil && !errors.Is(err, redis.Nil) {
		more = append(more, "error", err.Error())
	}
	h.log.Info(what, more...)
}

// DialHook implements [redis.Hook].
func (h debugHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		began := time.Now()
		conn, err := next(ctx, network, addr)
		h.line("dial", began, err)
		return conn, err
	}
}

// ProcessHook implements [redis.Hook].
func (h debugHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.line("request", began, err, "commands", cmd.Name())
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h debugHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		began, count, refused := time.Now(), map[string]int{}, 0
		err := next(ctx, all)
		for _, cmd := range all {
			count[cmd.Name()]++
			if failed := cmd.Err(); failed != nil && !errors.Is(failed, redis.Nil) {
				refused++
				err = cmp.Or(err, failed)
			}
		}
		var names []string
		for _, name := range slices.Sorted(maps.Keys(count)) {
			names = append(names, fmt.Sprintf("%s×%d", name, count[name]))
		}
		h.line("request", began, err, "commands", strings.Join(names, " "), "failed", refused)
		return err
	}
}
