package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// replication is what a server has reported of its replication, and when. With it a
// watcher knows which locks a replica had received when it became the master. The zero
// value knows nothing.
type replication struct {
	runID     string // of the process
	role      string
	id        string // of the history of writes: master_replid
	formerID  string // of the history that this one continues: master_replid2
	received  int64  // offset in the former history up to which the server has it
	loads     bool   // the process began with the data of an append-only file or a snapshot
	offsets   []offsetSample
	sampledAt time.Time
}

// offsetSample is a position in the history of writes.
type offsetSample struct {
	asked  time.Time // local clock: every write that was read before is part of the offset
	offset int64     // master_repl_offset
}

// Sampling of the offset of a master that has replicas.
const (
	sampleEvery = time.Second
	maxSamples  = 60 // a replica with more lag proves nothing
)

// parseReplication parses the sections server, replication and persistence of INFO.
func parseReplication(info string, asked time.Time) replication {
	r := replication{sampledAt: asked}
	for name, text := range map[string]*string{"run_id": &r.runID, "role": &r.role, "master_replid": &r.id, "master_replid2": &r.formerID} {
		*text, _ = InfoValue(info, name)
	}
	if first, known := InfoValue(info, "second_repl_offset"); known { // of the new history
		r.received = number(first) - 1
	}
	aof, _ := InfoValue(info, "aof_enabled")
	loaded, _ := InfoValue(info, "rdb_last_load_keys_loaded") // since Redis 7.0
	r.loads = aof == "1" || number(loaded) > 0
	if offset, known := InfoValue(info, "master_repl_offset"); known {
		r.offsets = []offsetSample{{asked, number(offset)}}
	}
	return r
}

// add adds a later report of the same process.
func (r *replication) add(later replication) {
	if r.id == later.id {
		later.offsets = append(r.offsets, later.offsets...)
		later.offsets = later.offsets[max(0, len(later.offsets)-maxSamples):]
	}
	*r = later
}

// receivedFrom returns the time, on the local clock, up to which a server has received
// what was read on its predecessor before; zero if it is not known.
func (r *replication) receivedFrom(before *replication) (until time.Time) {
	if before.id == "" || before.id != r.formerID {
		return time.Time{}
	}
	for _, s := range before.offsets {
		if s.offset <= r.received {
			until = s.asked
		}
	}
	return until
}

// readReplication reads the state of the replication. Without the permission it is empty.
func (w *Watcher) readReplication(ctx context.Context) (replication, error) {
	p := w.scanner.rdb.Pipeline()
	infos := []*redis.StringCmd{p.Info(ctx, "server"), p.Info(ctx, "replication"), p.Info(ctx, "persistence")}
	asked := time.Now()
	if _, err := w.reader.conn.exec(ctx, p); err != nil {
		return replication{}, fmt.Errorf("read the state of the replication: %w", err)
	}
	if err := infos[0].Err(); isConnLost(err) || isTransient(err) {
		return replication{}, fmt.Errorf("read the state of the replication: %w", err)
	}
	return parseReplication(infos[0].Val()+infos[1].Val()+infos[2].Val(), asked), nil
}

// sampleReplication reads the state of the replication of a master with replicas once per
// second.
func (w *Watcher) sampleReplication(ctx context.Context) error {
	now := time.Now()
	if w.server.info.Replicas == 0 || now.Sub(w.replication.sampledAt) < sampleEvery || !w.scanner.opts.Budget.allow(now) {
		return nil
	}
	r, err := w.readReplication(ctx)
	if err == nil && w.replication.runID != "" && w.replication.runID != r.runID {
		err = errRestarted
	}
	if err == nil {
		w.replication.add(r)
	}
	return err
}

// detectReplaced finds out, after the server could not be read or lost all keys, whether
// it is another process or has become a replica. The known locks are then those of the
// server before.
func (w *Watcher) detectReplaced(ctx context.Context) error {
	now, err := w.readReplication(ctx)
	if err != nil {
		return err
	}
	was := w.replication
	if was.runID == "" {
		was.runID, was.role = w.server.info.RunID, w.server.info.Role
	}
	if time.Now().Before(w.server.demotedUntil) {
		was.role = "master"
	}
	switch {
	case was.runID == "" || now.runID == "": // a new watcher, or no permission
	case was.runID != now.runID, was.role == "master" && now.role == "slave":
		w.replication = was
		w.markReplaced()
		w.server.demotedUntil = time.Time{}
	}
	w.replication.add(now)
	return nil
}

// lostWith reports whether a lock that does not exist any more, or has another holder,
// was lost with the server that this one has replaced. Its holder may have released it on
// the new server before the first read; only a new server that is known to have received
// the hold proves that. If a server has loaded its data again, it may have had the hold.
func (w *Watcher) lostWith(before *replication, was candidate) (lost, perhaps bool) {
	switch {
	case before.runID != "" && before.runID == w.replication.runID && w.replication.role != "slave": // the same server is back
		return false, false
	case before.role == "slave": // another replica may lag
		return false, false
	}
	until := w.replication.receivedFrom(before)
	if until.IsZero() && w.replication.loads && w.replication.role != "slave" { // a replica copies its master's data
		return false, true
	}
	return until.IsZero() || until.Before(was.firstRead), false
}

// Carryover passes what a closed watcher knows to the next watcher of the same database:
// after a failover the locks have another server, and their past remains. It is for the
// watchers of one Sentinel group, cluster or server, and safe for concurrent use.
type Carryover struct {
	mu   sync.Mutex
	left []*Watcher // closed
}

// leave stores a watcher that is closed.
func (c *Carryover) leave(w *Watcher) {
	if c == nil {
		return
	}
	w.markReplaced()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, w)
}

// take removes and returns the closed watchers of a database.
func (c *Carryover) take(db int) (all []*Watcher) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = slices.DeleteFunc(c.left, func(past *Watcher) bool {
		if past.scanner.opts.DB == db {
			all = append(all, past)
		}
		return past.scanner.opts.DB == db
	})
	return all
}

// carryOver continues the watches that closed watchers of this database have left. It
// reads their locks in the next cycle.
func (w *Watcher) carryOver() {
	for _, past := range w.scanner.opts.Carryover.take(w.scanner.opts.DB) {
		w.endings.published.PutAll(&past.endings.published)
		w.holdStats.Add(&past.holdStats)
		w.unreported.events = append(w.unreported.events, past.unreported.events...)
		maps.Copy(w.possible.confirmed, past.possible.confirmed)
		for key := range past.locks.known {
			l, _ := past.locks.known.get(key)
			if _, known := w.locks.known[key]; known || w.scanner.opts.Cluster.ownedByOther(key, w) {
				continue
			}
			w.locks.put(none, l, time.Unix(0, 0)) // due immediately
			w.locks.replaced[key] = past.locks.replaced[key]
			w.scanner.opts.Cluster.record(w, l)
		}
	}
}

// markReplaced notes that another server has taken the place of the server on which the
// known locks were read.
func (w *Watcher) markReplaced() {
	was := w.replication
	for key := range w.locks.known {
		if w.locks.replaced[key] == nil {
			w.locks.replaced[key] = &was
		}
	}
	w.replication = replication{}
}
