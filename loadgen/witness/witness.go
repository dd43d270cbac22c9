// Package witness proves that clients were inside a critical section at once, without a
// common clock.
//
// A client that has acquired a lock adds an entry to a stream on a Redis server, the
// witness. It adds another one before it releases the lock. The order of the stream is the
// only clock. When the reply to the second entry has arrived, the client checks its lease.
// If the lease is still valid, the client held the lock between its two entries, because a
// lease that is valid now was valid before. If this holds for two clients whose entries
// cross, they were inside at once.
//
// A hold whose lease ends earlier, and one whose client crashes, proves nothing. So the
// witness may miss an overlap, and never reports one that did not happen.
package witness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/loadgen/oracle"
)

// within bounds each request of a client. A slow witness delays the clients.
const within = time.Second

// readInterval is the pause between two reads of the stream.
const readInterval = 200 * time.Millisecond

// keepFor is the TTL of the stream, for a run that ends without Close.
const keepFor = time.Hour

// Witness adds the holds of clients to a stream, and judges them. All methods but Close are
// safe for concurrent use.
type Witness struct {
	rdb    redis.Cmdable
	stream string

	mu        sync.Mutex
	confirmed []string // holds to be confirmed with the next entry
	trips     []int64  // of earlier entries, to be told with the next one

	unseen atomic.Int64 // entries that could not be added, to be told with the next one

	stop    context.CancelFunc
	reading sync.WaitGroup

	judging       sync.Mutex // guards what follows
	history       oracle.History
	open          map[string]*Entry       // by ID: holds that may still be proven
	newest        map[int]*Entry          // by client
	place         int64                   // of the last entry that was judged
	losses        int                     // faults that delete locks now
	holds, proven int64                   // see [Counts]
	spent         *hdrhistogram.Histogram // trips of all processes, in µs
	missed        int64                   // entries of all processes that could not be added
	last          string                  // ID of the last entry that was judged
	failed        error                   // of the last read
}

// Counts are the holds that a witness has seen. Their crossings are those of the proven ones.
type Counts struct {
	Holds  int64 `json:"hold_count"`   // that entered
	Proven int64 `json:"proven_count"` // of them, those whose lease was valid until they had left
	oracle.Crossings
}

// Entry is an entry of a witness. A client enters, or leaves, or neither.
type Entry struct {
	ID        string   `json:"-"`                   // an entry by which a client enters identifies its hold
	Client    int      `json:"client,omitempty"`    // that enters, counted from 1
	Keys      []string `json:"keys,omitempty"`      // of its hold
	Shared    bool     `json:"shared,omitempty"`    // the hold is for reading
	Left      string   `json:"left,omitempty"`      // ID of a hold whose client leaves
	Confirmed []string `json:"confirmed,omitempty"` // IDs of holds that have left, with a lease that was still valid
	Loss      Loss     `json:"loss,omitempty"`
	Trips     []int64  `json:"trips,omitempty"`  // times to add earlier entries of the process, in µs
	Unseen    int64    `json:"unseen,omitempty"` // number of earlier entries of the process that could not be added

	from, to int64  // places of the entry, and of the one by which its client leaves; 0 = it is inside
	before   string // ID of the hold of the client before
}

// Loss says that a fault that deletes locks begins or is over.
type Loss string

// Values of Loss, besides the empty string.
const (
	LossBegan Loss = "began"
	LossEnded Loss = "ended"
)

// Open returns a witness of locks that admit limit clients at once. run must be unique. Open
// returns an error if the server cannot be written to, or does not answer within 5 s. The caller
// closes rdb after Close.
func Open(ctx context.Context, rdb redis.Cmdable, run string, limit int) (*Witness, error) {
	w := Join(rdb, run)
	w.history.Limit = limit
	err := context.DeadlineExceeded
	for try := 0; try < 5 && errors.Is(err, context.DeadlineExceeded); try++ { // each takes up to within
		_, err = w.add(ctx, Entry{})
	}
	if err == nil {
		err = rdb.Expire(ctx, w.stream, keepFor).Err()
	}
	if err != nil {
		return nil, fmt.Errorf("write to the witness: %w", err)
	}
	reading, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.reading.Go(func() { w.readAll(reading) })
	return w, nil
}

// Join returns a witness that adds the holds of this process to the stream of a run which
// another process has opened, and judges. Call Flush instead of Close at the end.
func Join(rdb redis.Cmdable, run string) *Witness {
	return &Witness{
		rdb: rdb, stream: "locktop:witness:{" + run + "}", last: "0",
		open: make(map[string]*Entry), newest: make(map[int]*Entry), spent: hdrhistogram.New(1, within.Microseconds(), 3),
	}
}

// Flush adds what waits for the next entry.
func (w *Witness) Flush(ctx context.Context) {
	if _, err := w.add(ctx, Entry{}); err != nil {
		w.unseen.Add(1)
	}
	_ = w.rdb.Expire(ctx, w.stream, keepFor).Err() // the stream is a new one if it was closed before
}

// LossBegan notes that a fault that deletes locks is about to begin, and returns a function
// that notes its end. What overlaps because of it is excused, also if the witness does not
// answer. A client that has acquired a lock before the fault must enter before the end is
// noted, or its hold must not be confirmed. A nil Witness sees nothing.
func (w *Witness) LossBegan(ctx context.Context) (ended func()) {
	if w == nil {
		return func() {}
	}
	note := func(l Loss) {
		if _, err := w.add(context.WithoutCancel(ctx), Entry{Loss: l}); err != nil {
			w.unseen.Add(1)
			if l == LossBegan { // all that is judged from now on may be excused
				w.judging.Lock()
				defer w.judging.Unlock()
				w.take(&Entry{Loss: l})
			}
		}
	}
	note(LossBegan)
	return func() { note(LossEnded) }
}

// Enter notes that a client, counted from 1, holds the locks of all keys. It waits for the reply, at
// most 1 s, and returns the ID of the hold, "" if the witness has not seen it.
func (w *Witness) Enter(ctx context.Context, client int, keys []string, shared bool) (hold string) {
	hold, err := w.add(ctx, Entry{Client: client, Keys: keys, Shared: shared})
	if err != nil {
		w.unseen.Add(1)
	}
	return hold
}

// Leave notes that the client of a hold is about to release. It waits for the reply, at most 1 s, and
// then calls valid, which reports whether the lease is still valid.
func (w *Witness) Leave(ctx context.Context, hold string, valid func() bool) {
	if hold == "" {
		return
	}
	if _, err := w.add(ctx, Entry{Left: hold}); err != nil {
		w.unseen.Add(1)
		return
	}
	if valid() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.confirmed = append(w.confirmed, hold)
	}
}

// add adds an entry, with the confirmations that wait, and returns its ID.
func (w *Witness) add(ctx context.Context, e Entry) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	w.mu.Lock()
	e.Confirmed, e.Trips, e.Unseen = w.confirmed, w.trips, w.unseen.Swap(0)
	w.confirmed, w.trips = nil, nil
	w.mu.Unlock()
	text, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	sent := time.Now()
	id, err = w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: w.stream, Values: []any{entryField, text}}).Result()
	trip := min(time.Since(sent), within)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.confirmed = append(w.confirmed, e.Confirmed...) // a second confirmation has no effect
		w.trips = append(w.trips, e.Trips...)
		w.unseen.Add(e.Unseen)
		return "", err
	}
	w.trips = append(w.trips, trip.Microseconds())
	return id, nil
}

// entryField is the field of the stream that has an [Entry] as JSON.
const entryField = "entry"

// readAll reads the stream until ctx ends.
func (w *Witness) readAll(ctx context.Context) {
	tick := time.NewTicker(readInterval)
	defer tick.Stop()
	keep := time.NewTicker(keepFor / 4)
	defer keep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.note(w.read(ctx))
		case <-keep.C:
			_ = w.rdb.Expire(ctx, w.stream, keepFor).Err() // the next one may succeed
		}
	}
}

// note keeps the error of the last read.
func (w *Witness) note(err error) {
	w.judging.Lock()
	defer w.judging.Unlock()
	w.failed = err
}

// readBatch is the number of entries in one reply.
const readBatch = 1000

// read judges the new entries and deletes them from the stream.
func (w *Witness) read(ctx context.Context) error {
	for {
		streams, err := w.rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{w.stream, w.last}, Count: readBatch, Block: -1}).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return err
		}
		var ids []string
		for _, m := range streams[0].Messages {
			ids = append(ids, m.ID)
			if err := w.judge(m); err != nil {
				return err
			}
		}
		if err := w.rdb.XDel(ctx, w.stream, ids...).Err(); err != nil {
			return err
		}
	}
}

// judge judges one entry of the stream.
func (w *Witness) judge(m redis.XMessage) error {
	w.judging.Lock()
	defer w.judging.Unlock()
	w.last = m.ID
	text, _ := m.Values[entryField].(string)
	e := Entry{ID: m.ID}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return fmt.Errorf("entry %s of the stream %s is not of this program: %w", m.ID, w.stream, err)
	}
	w.take(&e)
	w.missed += max(e.Unseen, 0)
	for _, trip := range e.Trips {
		_ = w.spent.RecordValue(min(trip, within.Microseconds())) // in its bounds
	}
	return nil
}

// take takes the next entry. A hold is judged when it is proven.
func (w *Witness) take(e *Entry) {
	w.place++
	for _, id := range e.Confirmed {
		if h := w.open[id]; h != nil && h.to > 0 {
			w.proven++
			delete(w.open, id)
			w.history.Add(h.Client, h.Keys, h.Shared, h.from, h.to)
		}
	}
	switch h := w.open[e.Left]; {
	case e.Client > 0:
		w.enter(e)
	case h != nil:
		h.to = w.place
	case e.Loss == LossBegan:
		if w.losses++; w.losses == 1 {
			w.history.CutOrder(w.place, false)
		}
	case e.Loss == LossEnded && w.losses > 0:
		if w.losses--; w.losses == 0 {
			w.history.CutOrder(w.place, true)
		}
	}
}

// enter takes a hold. A client has one at a time: only its last one may still be proven, because the
// confirmation may be on the way.
func (w *Witness) enter(e *Entry) {
	w.holds++
	e.from = w.place
	if last := w.newest[e.Client]; last != nil {
		delete(w.open, last.before)
		e.before = last.ID
	}
	w.newest[e.Client], w.open[e.ID] = e, e
}

// Results are what a witness has seen.
type Results struct {
	Counts
	Unseen int64         // entries that were not added, because the witness did not answer
	P50    time.Duration // of the time to add an entry, which each hold spends twice
	P99    time.Duration
	Err    error // why later entries were not judged; nil = all were
}

// String describes the results in words.
func (r Results) String() string {
	text := humanize.Plural(r.Overlaps, "overlap")
	if r.Excused > 0 {
		text += fmt.Sprintf(" (%s after a fault that deletes locks)", humanize.Count(r.Excused))
	}
	text += fmt.Sprintf(" in the order of %s of %s", humanize.Count(r.Proven), humanize.Plural(r.Holds, "hold"))
	if len(r.Examples) > 0 {
		first := r.Examples[0]
		text += fmt.Sprintf(" (first: %s and %s on %s)", strings.Join(first.Others, ", "), first.Client, first.Key)
	}
	return fmt.Sprintf("%s; an entry took p50 %s, p99 %s", text, humanize.Precise(r.P50), humanize.Precise(r.P99))
}

// Results returns the results so far. The last 0.2 s may be missing before Close.
func (w *Witness) Results() Results {
	w.judging.Lock()
	defer w.judging.Unlock()
	microseconds := func(percent float64) time.Duration {
		return time.Duration(w.spent.ValueAtQuantile(percent)) * time.Microsecond
	}
	return Results{Counts{w.holds, w.proven, w.history.Crossings()}, w.missed + w.unseen.Load(), microseconds(50), microseconds(99), w.failed}
}

// Close judges the rest of the stream and deletes it. All clients must have left before.
func (w *Witness) Close(ctx context.Context) error {
	w.stop()
	w.reading.Wait()
	_, err := w.add(ctx, Entry{}) // the last confirmations
	if err == nil {
		err = w.read(ctx)
	}
	w.note(err)
	err = errors.Join(err, w.rdb.Del(ctx, w.stream).Err())
	if err != nil {
		return fmt.Errorf("read the witness: %w", err)
	}
	return nil
}
