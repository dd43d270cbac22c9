package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// prove finds the client of a holder with MONITOR.
func (r *whoRun) prove(ctx context.Context) error {
	id := &r.identity
	if !r.options.force {
		if err := mayMonitor(ctx, r.scanner); err != nil {
			return err
		}
	}
	q := inspect.MonitorQuery{Key: id.lock.Key, Token: id.holder.ID, DB: id.lock.DB, Window: maxProofTime}
	if ends := id.holder.Expires; !ends.IsZero() { // before it, the lock is renewed, or gone
		q.Window = min(max(ends.Sub(id.at), 0)+time.Second, maxProofTime)
	}
	line := r.program.newProgressLine()
	line.show(fmt.Sprintf("MONITOR runs for up to %s", humanize.Duration(q.Window)))
	seen, err := monitorInChild(ctx, &r.flags, r.scanner.Addr(), q)
	line.clear()
	switch {
	case errors.Is(err, inspect.ErrNotSighted):
		text := fmt.Errorf("within %s, %w", humanize.Duration(q.Window), err)
		if seen.Command != "" {
			text = fmt.Errorf("%w; %s has sent %s with the key and the value of the lock, which is no proof: %s",
				text, render.Text(seen.Addr), strings.ToUpper(render.Text(seen.Command)), seen.Doubt)
		}
		return &exitError{code: exitFailure, err: text, hint: "its holder may not renew it: try again, or when it is released"}
	case err != nil:
		return monitorFailed(err)
	}
	id.known, id.why = byProof, fmt.Sprintf("MONITOR showed its %s with the key and the token", strings.ToUpper(seen.Command))
	id.clients = []keyspace.Client{{Addr: seen.Addr}}
	if clients, _, err := r.scanner.Clients(ctx, nil); err == nil {
		if i := slices.IndexFunc(clients, func(c keyspace.Client) bool { return c.Addr == seen.Addr }); i >= 0 {
			id.clients[0] = clients[i]
		}
	}
	return nil
}

// maxProofTime is how long MONITOR runs at most for a proof.
const maxProofTime = 15 * time.Second
