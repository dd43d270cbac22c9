package cli

import (
	"context"
	"sync"

	"locktop/keyspace/release"
	"locktop/tui"
)

// connector connects the screen to another database of the same servers or to other
// key patterns. It closes the previous target.
type connector struct {
	connection connFlags
	selection  selection
	rights     writeFlags
	log        release.AuditLog

	mu   sync.Mutex
	open *target
}

// Connect implements [tui.Connector].
func (g *connector) Connect(ctx context.Context, v tui.Target) (tui.Config, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, s := g.connection, g.selection
	if v.DB != "" {
		if err := c.db.Set(v.DB); err != nil {
			return tui.Config{}, err
		}
		given := c.given
		c.given = func(flag string) bool { return flag == "db" || given(flag) }
	}
	if v.Match != "" {
		s.match = nil
		if v.Match != "*" {
			s.match = []string{v.Match}
		}
	}
	if err := g.rights.check(&c); err != nil {
		return tui.Config{}, err
	}
	seeds, err := c.seeds()
	if err != nil {
		return tui.Config{}, err
	}
	t, err := c.newTarget(ctx, seeds)
	if err != nil {
		return tui.Config{}, err
	}
	g.turn(t)
	g.connection, g.selection = c, s
	return g.world(ctx, t), nil
}

// turn replaces the target and closes the previous one.
func (g *connector) turn(t *target) {
	if g.open != nil {
		g.open.close()
	}
	g.open = t
}

// world returns the configuration of the screen for a target.
func (g *connector) world(ctx context.Context, t *target) tui.Config {
	s := g.selection
	w := tui.Config{
		Source: filteredSource{t.follow(&s), &s}, Store: t.rawReader(&s), CommandStats: keepAll(t.servers),
		Title: t.title, Connector: g, RedisCLI: g.connection.redisCLI(),
	}
	if g.rights.write {
		w.Breaker, w.Production = breakerOf(ctx, t.servers, g.log), g.rights.production
	}
	return w
}

// close closes the current target.
func (g *connector) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn(nil)
}
