package lock

import "context"

// query is what one node is asked in a round. A plain answer is taken in by
// whoever reads it from the wire; anything else takes a goroutine.
type query struct {
	call
	round    *round
	node     int
	question *question

	// Guarded by round.mu.
	answered bool // by the node, or by its silence
	late     bool // given up, but seen through when the answer comes: one of the tasks until then
}

func (q *query) send() {
	q.wire, q.script = q.way(), q.question.script
	q.first.args, q.first.listener = q.question.argv, q
	q.cmd, q.reply = &q.first, &q.first // before it is sent: it may be answered at once
	if refused, ok := q.wire.send(q.round.transport.alive, &q.first).(unsent); ok {
		q.first.finish(nil, refused)
	}
}

func (q *query) site() *site { return &q.round.sites[q.node] }

// way returns the wire to the node. The last word takes the one that cannot be shut.
func (q *query) way() wire {
	if q.question.after != nil {
		return q.site().node
	}
	return q.site()
}

// heard implements [listener].
func (q *query) heard() {
	if q.first.err != nil {
		q.round.transport.tasks.join()
		go q.pursue()
		return
	}
	r := q.round
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answer(q, q.first.value, nil) {
		defer r.rest()
	}
	if q.question.after != nil && q.site().suspect() {
		r.transport.tasks.join()
		go q.pursue()
	}
}

// giveUp stops waiting for the answer. Called with round.mu held.
func (q *query) giveUp() {
	if q.question.after != nil {
		q.late = true
		q.round.transport.tasks.join()
	}
	q.round.answer(q, nil, context.DeadlineExceeded)
	q.round.rest()
}

// pursue goes after what is not plainly an answer, and after what an answer leaves
// to do.
func (q *query) pursue() {
	defer q.round.transport.tasks.done()
	ctx, cancel := context.WithDeadline(q.round.transport.alive, q.round.ends)
	reply, err := q.wait(ctx)
	cancel()
	q.conclude(reply, err)
	if q.question.after == nil {
		return
	}
	q.question.after(q)
	if q.late {
		q.round.transport.tasks.done()
	}
}

// conclude takes the answer in, unless time is up.
func (q *query) conclude(reply any, err error) {
	q.round.mu.Lock()
	defer q.round.mu.Unlock()
	if q.round.answer(q, reply, err) {
		q.round.rest()
	}
}

// wait implements [pending]. What was refused without a word is asked again.
func (q *query) wait(ctx context.Context) (any, error) {
	reply, err := q.call.wait(ctx)
	if err != nil || reply != nil || q.question.instead == nil {
		return reply, err
	}
	other := q.question.instead()
	c := &call{wire: q.wire, script: other.script}
	c.push(ctx, &c.first, other.argv)
	return c.wait(ctx)
}
