package lock

import (
	"context"
	"fmt"
	"time"

	"locktop/lock/internal/transport"
)

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
	w := &waitTransport{core: b.client.core, Transport: b.client.transport, key: b.key, opts: b.opts}
	reply, err := b.protocol.extend(ctx, w, token, b.opts.keyTTL()).wait(ctx)
	switch {
	case err != nil:
		err = describe("replicate", b.key, err)
	case reply != int64(1):
		err = fmt.Errorf("lock: acquire %q: %w", b.key, ErrLost)
	case w.acks < int64(b.opts.Replicas):
		err = fmt.Errorf("lock: acquire %q: %w: %d of %d confirmed it within %v", b.key, errNotReplicated, w.acks, b.opts.Replicas, b.opts.ReplicaTimeout)
	default:
		return sent, nil
	}
	b.client.undo(b.protocol, token, sent.Add(b.opts.keyTTL()), nil)
	return sent, err
}

// waitTransport is a transport that sends WAIT behind each command.
type waitTransport struct {
	transport.Transport
	*core
	key  string
	opts Options
	acks int64 // replicas that have the last write; read it after the reply
}

// Send implements [transport.Transport].
func (w *waitTransport) Send(ctx context.Context, cmd *transport.Command) transport.Reply {
	r := &waitReply{alive: w.alive, done: make(chan struct{})}
	w.tasks.spawn(func() {
		defer close(r.done)
		w.acks, r.err = w.Transport.ExecWithWait(ctx, w.key, cmd, w.opts.Replicas, w.opts.ReplicaTimeout)
	})
	return r
}

// waitReply is the reply to a command with WAIT behind it.
type waitReply struct {
	alive context.Context // ends with the core
	done  chan struct{}
	err   error // valid when done is closed
}

func (r *waitReply) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	case <-r.alive.Done():
		return ErrClosed
	}
}
