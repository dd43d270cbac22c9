package connect

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// Session has what the connections of one program share: the log of --debug, the answer to
// --askpass, the passwords that may change, and the way through ssh. The zero value has none of
// them. It is safe for concurrent use.
type Session struct {
	mu      sync.Mutex
	debug   *slog.Logger // nil: none is open
	asked   string       // the answer to --askpass; "": not asked yet
	secrets map[source]*secret
	tunnel  *tunnel // nil: none is open
}

// Open connects by the flags, the context and the environment. It makes sure that a
// server answers and that the user is the one in the flags: a rejected password is an
// error, and never a reason to continue as the default user.
//
// Before it connects, Open warns of what is unsafe. If p has a Note, Open waits for a server
// that loads its data or runs a script, for at most [loadingWait].
func (s *Session) Open(ctx context.Context, c *Flags, p Prompt) (*Target, error) {
	r, err := s.Resolve(ctx, c, p)
	if err != nil {
		return nil, err
	}
	for _, e := range r.seeds {
		if _, err := r.options(e); err != nil {
			return nil, err
		}
		if p.Warn != nil {
			c.warn(p.Warn, e)
		}
	}
	if r.tunnel, err = s.openSSH(ctx, c, r.seeds[0]); err != nil {
		return nil, err
	}
	t := newTarget(r)
	err = t.pingLoaded(ctx, p.Note)
	if err == nil {
		err = cmp.Or(t.checkPermits(ctx), t.checkVotes(ctx))
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Resolve returns where the flags lead, without a connection. The first call asks for the password
// if --askpass, or a command or a file, has it.
func (s *Session) Resolve(ctx context.Context, c *Flags, p Prompt) (*Resolved, error) {
	if err := cmp.Or(c.checkTopology(), c.checkPassword()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openDebug(c.debugFile); err != nil {
		return nil, err
	}
	if c.askPass {
		if s.asked == "" {
			var err error
			if s.asked, err = p.password(ctx); err != nil {
				return nil, err
			}
		}
		own := *c
		own.pass, own.askPass = s.asked, false
		c = &own
	}
	changing, err := s.secretOf(ctx, c)
	if err != nil {
		return nil, err
	}
	r, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	r.secret, r.debug = changing, s.debug
	return r, nil
}

// openDebug opens the file of --debug, once. Its lines have the names of commands, and neither
// keys nor values nor passwords. s.mu must be held.
func (s *Session) openDebug(name string) error {
	if name == "" || s.debug != nil {
		return nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return usagef("", "--debug: %w", err)
	}
	s.debug = slog.New(slog.NewJSONHandler(file, nil)).With("pid", os.Getpid())
	if info, ok := debug.ReadBuildInfo(); ok {
		s.debug.Info("start", "version", info.Main.Version, "go", info.GoVersion)
	}
	return nil
}

// secretOf returns the password that a command or a file has, nil if none has. It asks for it the
// first time, as a new connection would. s.mu must be held.
func (s *Session) secretOf(ctx context.Context, c *Flags) (*secret, error) {
	from := c.passwordSource()
	if known := s.secrets[from]; known != nil || !c.rotates() {
		return known, nil
	}
	one, err := newSecret(from)
	if err == nil {
		_, err = one.now(ctx)
	}
	if err != nil {
		return nil, err
	}
	if s.secrets == nil {
		s.secrets = make(map[source]*secret)
	}
	s.secrets[from] = one
	return one, nil
}

// openSSH returns the tunnel to the servers, one of which is seed; nil if the flags have no host
// for it. The last [Target.Close] closes it.
func (s *Session) openSSH(ctx context.Context, c *Flags, seed endpoint) (*tunnel, error) {
	host, origin := c.ssh, c.of.origin("ssh")
	if host == "" && !c.given("ssh") {
		return nil, nil
	}
	if err := checkSSHHost(origin, host); err != nil {
		return nil, err
	}
	if seed.network == "unix" {
		return nil, usagef("name a host and a port, as "+host+" reaches them", "%s does not reach a unix socket", origin)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tunnel == nil || s.tunnel.host != host || s.tunnel.uses.Load() == 0 {
		opened, err := openTunnel(ctx, host)
		if err != nil {
			return nil, err
		}
		s.tunnel = opened
	}
	s.tunnel.uses.Add(1)
	return s.tunnel, nil
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
		return noConnection(t.seeds[0], err, t.Timeout)
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
	if c.given("pass") || c.given("url") && namesPassword(c.url) || c.given("redlock") && slices.ContainsFunc(c.Redlock, namesPassword) {
		warning("a password on the command line can be read by every user of this machine: use --askpass or REDISCLI_AUTH")
	}
	if c.given("sentinel-pass") {
		warning("the password of --sentinel-pass can be read by every user of this machine: use LOCKTOP_SENTINEL_PASS or a context")
	}
	if len(c.Redlock) == 1 {
		warning("--redlock is given once: the locks of one server are no Redlocks; give it once for each server")
	}
	if c.security.insecure {
		warning("%s: the server's certificate is not verified", c.security.of.origin("insecure"))
	}
	for _, path := range []string{c.passwordSource().file, c.security.key} {
		if info, err := os.Stat(path); err == nil && permits(info, 0o004) { // Kubernetes and ssl-cert of Debian have keys for a group
			warning("%s", withChmod(path+" can be read by every user of this machine", path))
		}
	}
	if (e.pass != "" || c.rotates()) && !e.tls && !e.local() && c.ssh == "" {
		warning("the password travels to %s unencrypted: use --tls or rediss://", e)
	}
}
