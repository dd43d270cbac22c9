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

func (f *mutexProtocol) on(w transport) protocol {
	other := *f
	other.transport = w
	return &other
}

func (f *reentrantProtocol) on(w transport) protocol {
	other := *f
	other.transport = w
	return &other
}

func (f *fairProtocol) on(w transport) protocol {
	other := *f
	other.transport = w
	return &other
}

func (f *rwProtocol) on(w transport) protocol {
	other := *f
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
func (t *base) replicate(ctx context.Context, token string, sent time.Time) (time.Time, error) {
	if t.opts.Replicas == 0 {
		return sent, nil
	}
	sent = time.Now()
	w := &waitTransport{core: t.client.core, transport: t.client.transport, key: t.key, opts: t.opts}
	reply, err := t.protocol.(movable).on(w).extend(ctx, token, t.opts.TTL).wait(ctx)
	switch {
	case err != nil:
		err = describe("replicate", t.key, err)
	case reply != int64(1):
		err = fmt.Errorf("lock: acquire %q: %w", t.key, ErrLost)
	case w.acks < int64(t.opts.Replicas):
		err = fmt.Errorf("lock: acquire %q: %w: %d of %d confirmed it within %v", t.key, ErrNotReplicated, w.acks, t.opts.Replicas, t.opts.ReplicaTimeout)
	default:
		return sent, nil
	}
	t.client.undo(t.protocol, token, sent.Add(t.opts.TTL), nil)
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
	t := &waitReply{alive: w.alive, done: make(chan struct{})}
	w.tasks.spawn(func() {
		defer close(t.done)
		acks := redis.NewIntCmd(ctx, "wait", w.opts.Replicas, w.opts.ReplicaTimeout.Milliseconds())
		sent := cmd.cmd(ctx)
		t.err = w.transport.pipelineOn(ctx, w.key, w.opts.ReplicaTimeout+waitSlack, sent, acks)
		cmd.value, w.acks = sent.Val(), acks.Val()
	})
	return t
}

// waitReply is the reply to a command with WAIT behind it.
type waitReply struct {
	alive context.Context // without it nothing is sent any more
	done  chan struct{}
	err   error // after done
}

func (t *waitReply) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	case <-t.alive.Done():
		return ErrClosed
	}
}
