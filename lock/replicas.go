package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// movable is a form that can say its requests over another wire. Only locks of
// such a form can wait for replicas.
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

// replicate makes sure that enough replicas have a lock that was just granted
// to a request sent then, if the options want it. If they do not, the lock is
// given back. It returns when the request was sent from which the lease counts.
//
// Replicas are asked by WAIT, which speaks of what its own connection has written
// and nothing else: asked on any other, it may confirm what no replica has. It also
// stops its connection, where nobody else may be then. So the lock is prolonged
// once more, with WAIT right behind, on a connection taken for the purpose; the
// acquire itself stays on the ordered stream, on which it can be undone.
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

// waitTransport is a wire that sends each command with WAIT behind it.
type waitTransport struct {
	transport
	*core
	key  string
	opts Options
	acks int64 // how many replicas have what was written last; read it after the reply
}

// waitSlack is how much later than WAIT the network may be.
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
	alive context.Context // without it nothing is sent any more
	done  chan struct{}
	err   error // after done
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
