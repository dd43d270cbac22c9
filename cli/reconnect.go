package cli

import (
	"context"
	"sync"

	"locktop/keyspace"
	"locktop/tui"
)

// connector shows the user other locks of the same servers: of another database, or
// with other names. What it opens ends with it, or with the next.
type connector struct {
	connection connFlags
	selection  selection
	rights     writeFlags
	log        keyspace.AuditLog

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

// turn goes on with another target, and ends the one before.
func (g *connector) turn(t *target) {
	if g.open != nil {
		g.open.close()
	}
	g.open = t
}

// world is what there is to see and to do on a target.
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

// close ends what is open.
func (g *connector) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn(nil)
}
