package keyspace

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// How often, and of how many clients, the server is asked who is connected.
const (
	rollEvery = 2 * time.Second
	rollMost  = 1000 // the list of more would hold up everybody else
)

// rolling is the command that lists clients. Few may send it.
const rolling = "client"

// callRoll asks who is connected, if there are holders whom that could concern,
// and notes since when those are not who have been. Who may not ask does without.
func (w *Watcher) callRoll(ctx context.Context) error {
	a := &w.attendance
	now := time.Now()
	if now.Sub(a.called) < rollEvery || !w.scanner.opts.Budget.ready(now) {
		return nil
	}
	a.called, a.wanted = now, w.known.anyNamed()
	if !a.wanted || w.server.Role != "master" || w.reader.refused.has(rolling) {
		return nil
	}
	present, err := w.clients(ctx)
	if err != nil || present == nil {
		return err
	}
	came := make(map[hold]bool)
	for key, l := range w.known {
		if marked, changed := a.mark(l.lock, present, came, w.reader.now); changed {
			l.lock = marked
			w.known[key], w.sorted = l, nil
		}
	}
	a.came = came
	return nil
}

// clients returns the names of those who are connected; nil if that may not be
// asked, or they are too many.
func (w *Watcher) clients(ctx context.Context) (map[string]bool, error) {
	var info, list *redis.StringCmd
	err := w.reader.ask(ctx, "count clients", func(p redis.Pipeliner) { info = p.Info(ctx, "clients") })
	if err != nil {
		return nil, err
	}
	_, after, _ := strings.Cut(info.Val(), "connected_clients:")
	count, _, _ := strings.Cut(after, "\r")
	w.attendance.crowd = number(count)
	if n := w.attendance.crowd; n == 0 || n > rollMost {
		return nil, nil
	}
	err = w.reader.ask(ctx, "list clients", func(p redis.Pipeliner) { list = p.ClientList(ctx) })
	if err != nil || list.Err() != nil {
		return nil, err
	}
	return clientNames(list.Val()), nil
}
