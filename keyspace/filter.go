package keyspace

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// prefilter tells, of the keys that a walk meets, those that are worth reading. It
// asks of each key one thing at a time, in as few words as there are: its type,
// where that cannot be guessed from keys that were called alike, and a first
// piece of its value, as far as a format may still take it.
//
// A script on the server could do the same in one go. It was measured: to call
// a command from Lua takes the server as long as to get it from a client, all
// else waits while it runs, and many servers let nobody send scripts.
//
// The asking is done by its sifters, several at a time. They only read from their
// sieve, until it settles what they have learnt.
type prefilter struct {
	*formatIndex
	atLeast    Confidence
	confirmed  confirmedKeys
	known      lockSet // of what is in it nothing is asked: somebody else follows it
	guesses    typeGuesses
	noProbe    map[string]bool // types of which the server refuses to show a first piece
	unreadable int             // keys that this user may not read
	unlocated  int             // keys of a cluster that no node has owned up to
	threshold  Confidence      // that needs no second sign
	weakHits   int             // keys let through that had less to show
}

// newPrefilter returns a sieve for the formats of an index. Of a stream there is no piece to
// be had that would tell more than its name.
func newPrefilter(x *formatIndex, atLeast Confidence) prefilter {
	return prefilter{
		formatIndex: x, atLeast: atLeast, threshold: atLeast,
		guesses: make(typeGuesses), noProbe: map[string]bool{"stream": true},
	}
}

// workers returns so many sifters. Each asks through a link of its own.
func (f *prefilter) workers(n int, open func() meteredConn) []*filterWorker {
	all := make([]*filterWorker, n)
	for i := range all {
		all[i] = &filterWorker{prefilter: f, meteredConn: open(), newGuesses: make(typeGuesses), newNoProbe: make(map[string]bool)}
	}
	return all
}

// merge takes in what sifters have learnt.
func (f *prefilter) merge(all []*filterWorker) {
	for _, w := range all {
		f.unreadable += w.unreadable
		f.unlocated += w.unlocated
		f.weakHits += w.weakHits
		for typ := range w.newNoProbe {
			f.noProbe[typ] = true
		}
		for of, typ := range w.newGuesses {
			f.guesses.learn(of, typ)
		}
	}
}

// filterWorker asks about the keys on some pages of a walk, and keeps those that are
// worth reading. It is for one goroutine.
type filterWorker struct {
	*prefilter
	meteredConn
	probes     []probe
	pending    []candidateKey  // of which there is more to ask
	newGuesses typeGuesses     // since the sieve has settled
	newNoProbe map[string]bool // types of which a first piece was refused since then
	passed     []keyRef        // worth reading
	unreadable int             // keys that this user may not read
	unlocated  int             // keys of a cluster that no node has owned up to
	weakHits   int             // of the promising, those that have less than enough to show
}

// probeBatch is how many keys a sifter asks about in one go.
const probeBatch = 256

// candidateKey is a key that nothing rules out so far.
type candidateKey struct {
	keyRef
	shape     keyShape
	typeKnown bool // the type is what the server said, no guess
}

// probe is what is asked of a suspect: its type, or a piece of its value.
type probe struct {
	candidateKey
	typeCmd  *redis.StatusCmd
	valueCmd *redis.StringCmd
}

// run sifts names until there are no more.
func (w *filterWorker) run(ctx context.Context, names <-chan []string) error {
	for some := range names {
		if err := w.filterBatch(ctx, some); err != nil {
			return err
		}
	}
	for len(w.pending) > 0 {
		if err := w.filterBatch(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// filterBatch asks about keys, with what there still was to ask about those before them,
// and judges by the answers.
func (w *filterWorker) filterBatch(ctx context.Context, names []string) error {
	w.enqueue(names)
	if len(w.probes) == 0 {
		return nil
	}
	err := w.pipelined(ctx, "look at keys", func(pipe redis.Pipeliner) {
		for i := range w.probes {
			w.addProbe(ctx, pipe, &w.probes[i])
		}
	})
	if err != nil {
		return err
	}
	for i := range w.probes {
		q := &w.probes[i]
		if q.valueCmd != nil {
			w.onProbe(q)
		} else if err := w.onType(q); err != nil {
			return err
		}
	}
	return nil
}

// enqueue lines up the questions.
func (w *filterWorker) enqueue(names []string) {
	clear(w.probes)
	w.probes = w.probes[:0]
	for _, k := range w.pending {
		w.probes = append(w.probes, probe{candidateKey: k})
	}
	w.pending = w.pending[:0]
	for _, name := range names {
		if _, known := w.known[name]; known || w.isCompanion(name) {
			continue
		}
		k := candidateKey{keyRef: keyRef{key: name}, shape: shapeOf(name)}
		k.typ = w.guessType(k.shape)
		w.probes = append(w.probes, probe{candidateKey: k})
	}
}

// guessType returns the type that keys of a shape should have, "" if there is no
// telling.
func (w *filterWorker) guessType(of keyShape) string {
	if _, fresh := w.newGuesses[of]; fresh {
		return w.newGuesses.guess(of)
	}
	return w.guesses.guess(of)
}

// addProbe queues the next question about a suspect.
func (w *filterWorker) addProbe(ctx context.Context, pipe redis.Pipeliner, q *probe) {
	if q.typ == "" || !q.typeKnown && (w.probeDenied(q.typ) || w.needOf(q.key, q.typ) != needProbe) {
		q.typeCmd = pipe.Type(ctx, q.key)
		return
	}
	q.valueCmd = probeCmd(ctx, q.keyRef)
	_ = pipe.Process(ctx, q.valueCmd) // only queues: what goes wrong is known when it is sent
}

// probeDenied reports whether the server refuses to show first pieces of a type.
func (w *filterWorker) probeDenied(typ string) bool { return w.noProbe[typ] || w.newNoProbe[typ] }

// onType goes on with a key whose type is known now. One that may not be asked
// for, or is gone, is out; to be allowed to ask for none is an error.
func (w *filterWorker) onType(q *probe) error {
	typ, err := q.typeCmd.Result()
	switch {
	case isCommandDenied(err):
		return fmt.Errorf("look at keys: %w", err)
	case isKeyDenied(err):
		w.unreadable++
		return nil
	case isRedirect(err):
		w.unlocated++
		return nil
	case err != nil, typ == "none":
		return nil
	}
	w.learnType(q.shape, typ)
	q.typ, q.typeKnown = typ, true
	switch need := w.needOf(q.key, typ); {
	case need == needFull, need == needProbe && w.probeDenied(typ):
		w.passed = append(w.passed, q.keyRef)
	case need == needProbe:
		w.pending = append(w.pending, q.candidateKey)
	}
	return nil
}

// learnType takes in what type a key of a shape had.
func (w *filterWorker) learnType(of keyShape, typ string) {
	if w.guesses[of] != ambiguous && w.guessType(of) != typ {
		w.newGuesses.learn(of, typ)
	}
}

// onProbe goes on with a key of which a first piece has been seen.
func (w *filterWorker) onProbe(q *probe) {
	piece, err := q.valueCmd.Result()
	switch {
	case err == nil:
		atLeast := w.atLeast
		if w.confirmed[q.key] != "" {
			atLeast = Possible
		}
		sure := w.bestProbe(q.key, q.typ, piece, w.threshold)
		if sure < atLeast {
			return
		}
		w.passed = append(w.passed, q.keyRef)
		if sure < w.threshold {
			w.weakHits++
		}
	case isWrongType(err): // a wrong guess, which its type will tell, or it has changed
		w.retryType(q)
	case isCommandDenied(err):
		w.newNoProbe[q.typ] = true
		w.retryType(q)
	case isKeyDenied(err):
		w.unreadable++
	case isRedirect(err):
		w.unlocated++
	}
}

// retryType has the server say the type of a key of which no piece could be had.
func (w *filterWorker) retryType(q *probe) {
	w.pending = append(w.pending, candidateKey{keyRef: keyRef{key: q.key}, shape: q.shape})
}

// probeCmd is the command that shows the first piece of a value, in constant
// time and, but for a single huge element, in bounded space.
func probeCmd(ctx context.Context, k keyRef) *redis.StringCmd {
	switch k.typ {
	case "hash":
		return redis.NewStringCmd(ctx, "hrandfield", k.key)
	case "set":
		return redis.NewStringCmd(ctx, "srandmember", k.key)
	case "zset":
		return redis.NewStringCmd(ctx, "zrandmember", k.key)
	case "list":
		return redis.NewStringCmd(ctx, "lindex", k.key, 0)
	default:
		return redis.NewStringCmd(ctx, "getrange", k.key, 0, probeBytes-1)
	}
}
