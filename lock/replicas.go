package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// movable is a protocol that can send its requests over another transport. Only such
// protocols can wait for replicas.
type movable interface {
	on(w transport) protocol
}

func (p *mutexProtocol) on(w transport) protocol {
	other := *p
	other.transport = w
	return &other
}

func (p *reentrantProtocol) on(w transport) protocol {
	other := *p
	other.transport = w
	return &other
}

func (p *fairProtocol) on(w transport) protocol {
	other := *p
	other.transport = w
	return &other
}

func (p *rwProtocol) on(w transport) protocol {
	other := *p
	other.transport = w
	return &other
}

// replicate waits for the replicas that the options demand, after a lock was granted
// to a request sent at sent. If too few confirm the lock, it is undone. replicate
// returns the time from which the lease counts.
//
// WAIT confirms only what its own connection has written, and it blocks that
// connection. So replicate extends the lock once more on a dedicated connection, with
// WAIT right behind it. The acquire itself stays on the ordered pipe, on which it can
// be undone.
func (b *base) replicate(ctx context.Context, token string, sent time.Time) (time.Time, error) {
	if b.opts.Replicas == 0 {
		return sent, nil
	}
	sent = time.Now()
	w := &waitTransport{core: b.client.core, transport: b.client.transport, key: b.key, opts: b.opts}
	reply, err := b.protocol.(movable).on(w).extend(ctx, token, b.opts.TTL).wait(ctx)
	switch {
	case err != nil:
		err = describe("replicate", b.key, err)
	case reply != int64(1):
		err = fmt.Errorf("lock: acquire %q: %w", b.key, ErrLost)
	case w.acks < int64(b.opts.Replicas):
		err = fmt.Errorf("lock: acquire %q: %w: %d of %d confirmed it within %v", b.key, ErrNotReplicated, w.acks, b.opts.Replicas, b.opts.ReplicaTimeout)
	default:
		return sent, nil
	}
	b.client.undo(b.protocol, token, sent.Add(b.opts.TTL), nil)
	return sent, err
}

// waitTransport is a transport that sends WAIT behind each command.
type waitTransport struct {
	transport
	*core
	key  string
	opts Options
	acks int64 // replicas that have the last write; read it after the reply
}

// waitSlack is the time for the network, in addition to the timeout of WAIT.
const waitSlack = time.Second

func (w *waitTransport) send(ctx context.Context, cmd *command) reply {
	r := &waitReply{alive: w.alive, done: make(chan struct{})}
	w.tasks.spawn(func() {
		defer close(r.done)
		acks := redis.NewIntCmd(ctx, "wait", w.opts.Replicas, w.opts.ReplicaTimeout.Milliseconds())
		sent := cmd.cmd(ctx)
		r.err = w.transport.pipelineOn(ctx, w.key, w.opts.ReplicaTimeout+waitSlack, sent, acks)
		cmd.value, w.acks = sent.Val(), acks.Val()
	})
	return r
}

// waitReply is the reply to a command with WAIT behind it.
type waitReply struct {
	alive context.Context // ends with the core
	done  chan struct{}
	err   error // valid when done is closed
}

func (r *waitReply) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	case <-r.alive.Done():
		return ErrClosed
	}
}
