package servertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"locktop/internal/server"
)

// SlotMigration is the migration of one slot of a [Cluster] from its owner to another
// master. It is not safe for concurrent use.
type SlotMigration struct {
	slot     int
	from, to server.Client
	port     string // of the target
	ids      [2]string
	others   []server.Client
}

// StartMigration begins the migration of a slot to another master: the target imports
// the slot, its owner migrates it, and no key has moved yet. ctx limits only the call.
func (c *Cluster) StartMigration(ctx context.Context, slot int, to *server.Child) (*SlotMigration, error) {
	owner, err := c.Owner(ctx, slot)
	if err != nil {
		return nil, err
	}
	m := &SlotMigration{slot: slot, from: dial(owner), to: dial(to), port: portOf(to.Addr())}
	for _, node := range c.children[:c.masters] {
		if node != owner && node != to && node.PID() != 0 {
			m.others = append(m.others, dial(node))
		}
	}
	if err := m.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("move slot %d: %w", slot, err), m.Close())
	}
	return m, nil
}

func (m *SlotMigration) open(ctx context.Context) error {
	for i, rdb := range []server.Client{m.from, m.to} {
		id, err := rdb.Do(ctx, "cluster", "myid").Text()
		if err != nil {
			return err
		}
		m.ids[i] = id
	}
	if err := m.awaitEpoch(ctx); err != nil {
		return err
	}
	if err := m.to.Do(ctx, "cluster", "setslot", m.slot, "importing", m.ids[0]).Err(); err != nil {
		return err
	}
	return m.from.Do(ctx, "cluster", "setslot", m.slot, "migrating", m.ids[1]).Err()
}

// awaitEpoch waits until all masters know the newest epoch of the cluster. The target
// takes a newer epoch for the slot only if its own is not the newest that it knows. If
// another master has a newer one, its next message takes the slot back from the target,
// and no node serves the slot any more.
func (m *SlotMigration) awaitEpoch(ctx context.Context) error {
	return await(ctx, "one epoch of the cluster", func() (bool, error) {
		epochs := make(map[string]bool)
		for _, rdb := range append([]server.Client{m.from, m.to}, m.others...) {
			info, err := rdb.ClusterInfo(ctx).Result()
			if err != nil {
				return false, err
			}
			_, epoch, _ := strings.Cut(info, "cluster_current_epoch:")
			epoch, _, _ = strings.Cut(epoch, "\r")
			epochs[epoch] = true
		}
		return len(epochs) == 1, nil
	})
}

// MoveKeys moves at most the given number of keys of the slot. It returns the number
// of moved keys, which is 0 when the owner has none left.
func (m *SlotMigration) MoveKeys(ctx context.Context, most int) (int, error) {
	keys, err := m.from.ClusterGetKeysInSlot(ctx, m.slot, most).Result()
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	argv := []any{"migrate", "127.0.0.1", m.port, "", 0, 5000, "keys"}
	for _, key := range keys {
		argv = append(argv, key)
	}
	if err := m.from.Do(ctx, argv...).Err(); err != nil {
		return 0, fmt.Errorf("move %d keys of slot %d: %w", len(keys), m.slot, err)
	}
	return len(keys), nil
}

// Finish moves the remaining keys and assigns the slot to the target.
func (m *SlotMigration) Finish(ctx context.Context) error {
	for {
		n, err := m.MoveKeys(ctx, 100)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	for _, rdb := range append([]server.Client{m.to, m.from}, m.others...) {
		if err := rdb.Do(ctx, "cluster", "setslot", m.slot, "node", m.ids[1]).Err(); err != nil {
			return fmt.Errorf("hand slot %d over: %w", m.slot, err)
		}
	}
	return nil
}

// Close closes the connections. The state of the migration does not change.
func (m *SlotMigration) Close() error {
	var errs []error
	for _, rdb := range append([]server.Client{m.from, m.to}, m.others...) {
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}

// Owner returns the node that serves a slot, by the reply of the first node that
// answers.
func (c *Cluster) Owner(ctx context.Context, slot int) (*server.Child, error) {
	var failed error
	for _, node := range c.children {
		if node.PID() == 0 {
			continue
		}
		rdb := dial(node)
		// Servers before 7.0 do not know CLUSTER SHARDS.
		parts, err := rdb.ClusterSlots(ctx).Result()
		_ = rdb.Close()
		if err != nil {
			failed = err
			continue
		}
		for _, part := range parts {
			if part.Start <= slot && slot <= part.End && len(part.Nodes) > 0 {
				return c.Node(part.Nodes[0].Addr), nil
			}
		}
	}
	return nil, fmt.Errorf("no node of the cluster serves slot %d: %v", slot, failed)
}

// AwaitFailed waits until all running nodes consider failed as failed, or ctx ends.
func (c *Cluster) AwaitFailed(ctx context.Context, failed *server.Child) error {
	for _, node := range c.children {
		if node.PID() == 0 || node == failed {
			continue
		}
		rdb := dial(node)
		defer rdb.Close()
		err := await(ctx, failed.Addr()+" to count as failed", func() (bool, error) {
			all, err := rdb.ClusterNodes(ctx).Result()
			for line := range strings.Lines(all) {
				if strings.Contains(line, " "+failed.Addr()+"@") && strings.Contains(line, "fail ") {
					return true, nil
				}
			}
			return false, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// migrationTimeout is the longest wait of a test for a cluster.
const migrationTimeout = 30 * time.Second

// HalfMigrationForTest begins the migration of a slot to another master and moves only
// the given number of keys.
func (c *Cluster) HalfMigrationForTest(t TB, slot int, to *server.Child, keys int) *SlotMigration {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), migrationTimeout)
	defer cancel()
	m, err := c.StartMigration(ctx, slot, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if keys == 0 {
		return m
	}
	if n, err := m.MoveKeys(ctx, keys); err != nil || n != keys {
		t.Fatal("moved", n, "of", keys, "keys:", err)
	}
	return m
}

// KillForTest kills a node and waits until the other nodes consider it as failed.
func (c *Cluster) KillForTest(t TB, node *server.Child) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), migrationTimeout)
	defer cancel()
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitFailed(ctx, node); err != nil {
		t.Fatal(err)
	}
}

// Another returns the first master that does not have a slot.
func (c *Cluster) Another(slot int) *server.Child {
	to := c.Nodes()[0]
	if owner, err := c.Owner(context.Background(), slot); err == nil && owner == to {
		to = c.Nodes()[1]
	}
	return to
}

// MoveSlot moves a slot to a master, key by key.
func (c *Cluster) MoveSlot(ctx context.Context, slot int, to *server.Child) error {
	move, err := c.StartMigration(ctx, slot, to)
	if err != nil {
		return err
	}
	defer move.Close()
	for {
		n, err := move.MoveKeys(ctx, 1)
		if err != nil {
			return err
		}
		if n == 0 {
			return move.Finish(ctx)
		}
	}
}
