package cli

import (
	"context"
	"sync"

	"locktop/keyspace"
	"locktop/tui"
)

// guide shows the user other locks of the same servers: of another database, or
// with other names. What it opens ends with it, or with the next.
type guide struct {
	connection connection
	selection  selection
	rights     rights
	log        keyspace.AuditLog

	mu   sync.Mutex
	open *target
}

// Look implements [tui.Guide].
func (g *guide) Look(ctx context.Context, v tui.View) (tui.World, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, s := g.connection, g.selection
	if v.DB != "" {
		if err := c.db.Set(v.DB); err != nil {
			return tui.World{}, err
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
		return tui.World{}, err
	}
	seeds, err := c.seeds()
	if err != nil {
		return tui.World{}, err
	}
	t, err := c.connect(ctx, seeds)
	if err != nil {
		return tui.World{}, err
	}
	g.turn(t)
	g.connection, g.selection = c, s
	return g.world(ctx, t), nil
}

// turn goes on with another target, and ends the one before.
func (g *guide) turn(t *target) {
	if g.open != nil {
		g.open.close()
	}
	g.open = t
}

// world is what there is to see and to do on a target.
func (g *guide) world(ctx context.Context, t *target) tui.World {
	s := g.selection
	w := tui.World{
		Source: selected{t.follow(&s), &s}, Store: t.shelves(&s), Ledger: keepAll(t.servers),
		Title: t.title, Guide: g, RedisCLI: g.connection.redisCLI(),
	}
	if g.rights.write {
		w.Breaker, w.Production = breakerOf(ctx, t.servers, g.log), g.rights.production
	}
	return w
}

// close ends what is open.
func (g *guide) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn(nil)
}
