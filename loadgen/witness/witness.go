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

	judging sync.Mutex // guards what follows
	judge   Judge
	spent   *hdrhistogram.Histogram // trips of all processes, in µs
	missed  int64                   // entries of all processes that could not be added
	last    string                  // ID of the last entry that was judged
	failed  error                   // of the last read
}

// Open returns a witness of locks that admit limit clients at once. run must be unique. Open
// returns an error if the server cannot be written to, or does not answer within 5 s. The caller
// closes rdb after Close.
func Open(ctx context.Context, rdb redis.Cmdable, run string, limit int) (*Witness, error) {
	w := Join(rdb, run)
	w.judge.Limit = limit
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
		spent: hdrhistogram.New(1, within.Microseconds(), 3),
	}
}

// Flush adds what waits for the next entry. A nil Witness has nothing.
func (w *Witness) Flush(ctx context.Context) {
	if w == nil {
		return
	}
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
				w.judge.Add(Entry{Loss: l})
			}
		}
	}
	note(LossBegan)
	return func() { note(LossEnded) }
}

// Hold is a hold that the witness sees. A nil Hold is not seen. Not safe for concurrent use.
type Hold struct {
	witness *Witness
	id      string // empty: the witness has not seen it
}

// Enter notes that a client holds the locks of all keys. It waits for the reply, at most
// 1 s. A nil Witness sees nothing.
func (w *Witness) Enter(ctx context.Context, client string, keys []string, shared bool) *Hold {
	if w == nil {
		return nil
	}
	id, err := w.add(ctx, Entry{Client: client, Keys: keys, Shared: shared})
	if err != nil {
		w.unseen.Add(1)
	}
	return &Hold{w, id}
}

// Leave notes that the client is about to release. It waits for the reply, at most 1 s, and
// then calls valid, which reports whether the lease is still valid.
func (h *Hold) Leave(ctx context.Context, valid func() bool) {
	if h == nil || h.id == "" {
		return
	}
	w := h.witness
	if _, err := w.add(ctx, Entry{Left: h.id}); err != nil {
		w.unseen.Add(1)
		return
	}
	if valid() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.confirmed = append(w.confirmed, h.id)
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
		entries := streams[0].Messages
		if err := w.judgeAll(entries); err != nil {
			return err
		}
		ids := make([]string, len(entries))
		for i, e := range entries {
			ids[i] = e.ID
		}
		if err := w.rdb.XDel(ctx, w.stream, ids...).Err(); err != nil {
			return err
		}
	}
}

// readBatch is the number of entries in one reply.
const readBatch = 1000

func (w *Witness) judgeAll(entries []redis.XMessage) error {
	w.judging.Lock()
	defer w.judging.Unlock()
	for _, m := range entries {
		w.last = m.ID
		text, _ := m.Values[entryField].(string)
		e := Entry{}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return fmt.Errorf("entry %s of the stream %s is not of this program: %w", m.ID, w.stream, err)
		}
		e.ID = m.ID
		w.judge.Add(e)
		w.missed += max(e.Unseen, 0)
		for _, trip := range e.Trips {
			_ = w.spent.RecordValue(min(trip, within.Microseconds())) // in its bounds
		}
	}
	return nil
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
	text := fmt.Sprintf("%s%s in the order of %s of %s", humanize.Plural(r.Overlaps, "overlap"), excused(r.Counts), humanize.Count(r.Proven), humanize.Plural(r.Holds, "hold"))
	if len(r.Examples) > 0 {
		first := r.Examples[0]
		text += fmt.Sprintf(" (first: %s and %s on %s)", strings.Join(first.Others, ", "), first.Client, first.Key)
	}
	return fmt.Sprintf("%s; an entry took p50 %s, p99 %s", text, humanize.Precise(r.P50), humanize.Precise(r.P99))
}

func excused(c Counts) string {
	if c.Excused == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s after a fault that deletes locks)", humanize.Count(c.Excused))
}

// Results returns the results so far. The last 0.2 s may be missing before Close.
func (w *Witness) Results() Results {
	w.judging.Lock()
	defer w.judging.Unlock()
	microseconds := func(percent float64) time.Duration {
		return time.Duration(w.spent.ValueAtQuantile(percent)) * time.Microsecond
	}
	return Results{w.judge.Counts(), w.missed + w.unseen.Load(), microseconds(50), microseconds(99), w.failed}
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
