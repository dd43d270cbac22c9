package lock

import "context"

// nodeCall is what one node is asked in a round. A plain answer is taken in by
// whoever reads it from the wire; anything else takes a goroutine.
type nodeCall struct {
	call
	round       *round
	node        int
	nodeCommand *nodeCommand

	// Guarded by round.mu.
	answered bool // by the node, or by its silence
	late     bool // given up, but seen through when the answer comes: one of the tasks until then
}

func (q *nodeCall) send() {
	q.transport, q.script = q.route(), q.nodeCommand.script
	q.first.args, q.first.callback = q.nodeCommand.argv, q
	q.cmd, q.reply = &q.first, &q.first // before it is sent: it may be answered at once
	if refused, ok := q.transport.send(q.round.core.alive, &q.first).(failedReply); ok {
		q.first.complete(nil, refused)
	}
}

func (q *nodeCall) state() *nodeState { return &q.round.states[q.node] }

// route returns the wire to the node. The last word takes the one that cannot be shut.
func (q *nodeCall) route() transport {
	if q.nodeCommand.afterReply != nil {
		return q.state().node
	}
	return q.state()
}

// done implements [listener].
func (q *nodeCall) done() {
	if q.first.err != nil {
		q.round.core.tasks.add()
		go q.followUp()
		return
	}
	r := q.round
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accept(q, q.first.value, nil) {
		defer r.releaseTimer()
	}
	if q.nodeCommand.afterReply != nil && q.state().mayHold() {
		r.core.tasks.add()
		go q.followUp()
	}
}

// timeOut stops waiting for the answer. Called with round.mu held.
func (q *nodeCall) timeOut() {
	if q.nodeCommand.afterReply != nil {
		q.late = true
		q.round.core.tasks.add()
	}
	q.round.accept(q, nil, context.DeadlineExceeded)
	q.round.releaseTimer()
}

// followUp goes after what is not plainly an answer, and after what an answer leaves
// to do.
func (q *nodeCall) followUp() {
	defer q.round.core.tasks.done()
	ctx, cancel := context.WithDeadline(q.round.core.alive, q.round.ends)
	reply, err := q.wait(ctx)
	cancel()
	q.finish(reply, err)
	if q.nodeCommand.afterReply == nil {
		return
	}
	q.nodeCommand.afterReply(q)
	if q.late {
		q.round.core.tasks.done()
	}
}

// finish takes the answer in, unless time is up.
func (q *nodeCall) finish(reply any, err error) {
	q.round.mu.Lock()
	defer q.round.mu.Unlock()
	if q.round.accept(q, reply, err) {
		q.round.releaseTimer()
	}
}

// wait implements [pending]. What was refused without a word is asked again.
func (q *nodeCall) wait(ctx context.Context) (any, error) {
	reply, err := q.call.wait(ctx)
	if err != nil || reply != nil || q.nodeCommand.fallback == nil {
		return reply, err
	}
	other := q.nodeCommand.fallback()
	c := &call{transport: q.transport, script: other.script}
	c.send(ctx, &c.first, other.argv)
	return c.wait(ctx)
}
