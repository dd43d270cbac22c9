package contest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// keepers is the number of leases in B3, and keeperGoal the share of a core
// that locktop may use for them.
const (
	keepers    = 10_000
	keeperGoal = 0.15
)

// holder is a client that can report whether it still holds its lease.
type holder interface{ Held() bool }

// b3 measures the cost of keeping many leases.
func b3(ctx context.Context, a *Arena, size Size) (Result, error) {
	length, who := time.Minute, in(Keeping)
	if size == Quick {
		length, who = 4*time.Second, who[:1]
	}
	lease := Lease{TTL: 3 * time.Second, Renew: time.Second}
	result := Result{
		Title: "B3: leases that are kept",
		About: fmt.Sprintf("One process holds %d leases of %v and renews each every %v, for %v. Lost are those that had ended on either side by then.", keepers, lease.TTL, lease.Renew, length),
	}
	table := Table{Title: plural(keepers, "lease"), Columns: []string{"lost", "client, % of a core", "server, % of a core", "commands/s"}}
	for _, c := range who {
		k, err := a.keep(ctx, c, lease, length)
		if err != nil {
			return result, fmt.Errorf("B3: %w", err)
		}
		table.Rows = append(table.Rows, k.row(c.Name))
		if c.Name == Contenders()[0].Name {
			v := Verdict{name: fmt.Sprintf("B3 leases=%d", keepers)}
			v.atMost("lost", float64(k.lost), 0)
			v.atMost("cpu", k.share(k.ClientCPU), keeperGoal)
			result.Verdicts = append(result.Verdicts, v)
		}
	}
	result.Tables = append(result.Tables, table)
	return result, nil
}

// kept is the result of keeping leases.
type kept struct {
	Sample
	lost int
}

func (k kept) share(cpu time.Duration) float64 { return cpu.Seconds() / k.Wall.Seconds() }

func (k kept) row(name string) []string {
	return []string{
		name, fmt.Sprint(k.lost),
		fmt.Sprintf("%.1f", 100*k.share(k.ClientCPU)), fmt.Sprintf("%.1f", 100*k.share(k.ServerCPU)),
		fmt.Sprintf("%.0f", float64(k.Commands)/k.Wall.Seconds()),
	}
}

// keep lets a contender acquire its leases, waits for length, and counts the
// lost ones.
func (a *Arena) keep(ctx context.Context, c Contender, l Lease, length time.Duration) (k kept, err error) {
	if err := a.clear(ctx); err != nil {
		return k, err
	}
	clients, closeAll, err := a.open(c, Setting{Clients: keepers, Lease: l})
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return k, err
	}
	if err := eachOf(clients, func(c Client) error { return c.Lock(ctx) }); err != nil {
		return k, fmt.Errorf("%s: take the leases: %w", c.Name, err)
	}
	k, err = a.watch(ctx, clients, length)
	if err != nil {
		return k, fmt.Errorf("%s: %w", c.Name, err)
	}
	if k.lost > 0 {
		return k, nil // unlocking a lost lease is an error
	}
	if err := eachOf(clients, func(c Client) error { return c.Unlock(ctx) }); err != nil {
		k.lost++ // after the count
	}
	return k, nil
}

// watch waits for length and counts the lost leases.
func (a *Arena) watch(ctx context.Context, clients []Client, length time.Duration) (k kept, err error) {
	m := meter{a.rdb}
	before, err := m.read(ctx)
	if err != nil {
		return k, err
	}
	time.Sleep(length)
	after, err := m.read(ctx)
	if err != nil {
		return k, err
	}
	k.Sample = after.since(before)
	for _, c := range clients {
		if h, ok := c.(holder); !ok || !h.Held() {
			k.lost++
		}
	}
	stored, err := a.stored(ctx)
	k.lost = max(k.lost, len(clients)-stored)
	return k, err
}

// stored returns the number of keys that have not expired.
func (a *Arena) stored(ctx context.Context) (n int, err error) {
	for cursor := uint64(0); ; {
		var page []string
		page, cursor, err = a.rdb.Scan(ctx, cursor, "", 1000).Result()
		if err != nil {
			return n, fmt.Errorf("count the keys: %w", err)
		}
		n += len(page)
		if cursor == 0 {
			return n, nil
		}
	}
}

// eachOf calls do for every client, several at a time, and returns the first
// errors.
func eachOf(clients []Client, do func(Client) error) error {
	const atOnce = 64
	var group sync.WaitGroup
	errs := make([]error, atOnce)
	for i := range atOnce {
		group.Go(func() {
			for j := i; j < len(clients) && errs[i] == nil; j += atOnce {
				errs[i] = do(clients[j])
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
