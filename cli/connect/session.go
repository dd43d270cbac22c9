package connect

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
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
