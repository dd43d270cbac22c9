package contest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// renewCPUGoals are the shares of a core that locktop may use for a number of leases.
var renewCPUGoals = map[int]float64{10_000: 0.15, 100_000: 0.6}

// renewal measures the cost of keeping many leases.
func renewal(ctx context.Context, t *Testbed, size Size) (Result, error) {
	lease := Lease{TTL: 3 * time.Second, Renew: time.Second}
	length, contenders, counts := time.Minute, in(Keeping), []int{10_000, 100_000}
	if size == Quick {
		length, contenders, counts = 4*time.Second, contenders[:1], counts[:1]
	}
	result := Result{
		Title: "B3: leases that are kept",
		About: fmt.Sprintf("One process holds many leases of %v and renews each every %v, for %v. Lost are those that had ended on either side by then.", lease.TTL, lease.Renew, length),
	}
	for _, leases := range counts {
		table := Table{Title: fmt.Sprintf("%d leases", leases), Columns: []string{"lost", "client, % of a core", "server, % of a core", "commands/s"}}
		for _, c := range contenders {
			k, err := t.keepLeases(ctx, c, leases, lease, length)
			if err != nil {
				return result, fmt.Errorf("B3: %w", err)
			}
			table.Rows = append(table.Rows, k.row(c.Name))
			if c.Name == Contenders()[0].Name {
				v := Verdict{Name: fmt.Sprintf("B3 leases=%d", leases)}
				v.atMost("lost", float64(k.lost), 0)
				v.atMost("cpu", k.share(k.ClientCPU), renewCPUGoals[leases])
				result.Verdicts = append(result.Verdicts, v)
			}
		}
		result.Tables = append(result.Tables, table)
		contenders = contenders[:1] // the first is locktop
	}
	return result, nil
}

// leaseFigures is the result of keeping leases.
type leaseFigures struct {
	Sample
	lost int
}

func (k leaseFigures) share(cpu time.Duration) float64 { return cpu.Seconds() / k.Wall.Seconds() }

func (k leaseFigures) row(name string) []string {
	return []string{
		name, fmt.Sprint(k.lost),
		fmt.Sprintf("%.1f", 100*k.share(k.ClientCPU)), fmt.Sprintf("%.1f", 100*k.share(k.ServerCPU)),
		fmt.Sprintf("%.0f", float64(k.Commands)/k.Wall.Seconds()),
	}
}

// keepLeases lets a contender acquire leases, waits for length, and counts the
// lost ones.
func (t *Testbed) keepLeases(ctx context.Context, c Contender, leases int, l Lease, length time.Duration) (k leaseFigures, err error) {
	if err := t.clear(ctx); err != nil {
		return k, err
	}
	clients, closeAll, err := t.open(c, Setting{Clients: leases, Lease: l})
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return k, err
	}
	if err := eachOf(clients, func(c Client) error { return c.Lock(ctx) }); err != nil {
		return k, fmt.Errorf("%s: take the leases: %w", c.Name, err)
	}
	k, err = t.countLost(ctx, clients, length)
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

// countLost waits for length and counts the lost leases.
func (t *Testbed) countLost(ctx context.Context, clients []Client, length time.Duration) (k leaseFigures, err error) {
	before, err := readUsage(ctx, t.rdb)
	if err != nil {
		return k, err
	}
	time.Sleep(length)
	after, err := readUsage(ctx, t.rdb)
	if err != nil {
		return k, err
	}
	k.Sample = after.since(before)
	for _, c := range clients {
		if c.Held == nil || !c.Held() {
			k.lost++
		}
	}
	stored, err := t.stored(ctx)
	k.lost = max(k.lost, len(clients)-stored)
	return k, err
}

// stored returns the number of keys that have not expired.
func (t *Testbed) stored(ctx context.Context) (n int, err error) {
	for cursor := uint64(0); ; {
		var page []string
		page, cursor, err = t.rdb.Scan(ctx, cursor, "", 1000).Result()
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
