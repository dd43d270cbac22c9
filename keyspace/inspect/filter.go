package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// prefilter selects the keys that are worth reading. For each key it asks for one small
// thing at a time: the type, unless it can be guessed from similar names, and a first
// piece of the value, as long as a format may still match.
//
// A Lua script could do the same in one call. It was measured: a command called from
// Lua takes the server as long as one from a client, other clients wait while the
// script runs, and many servers do not permit scripts.
//
// The requests are sent by several workers at a time. They only read the prefilter;
// merge adds their results.
type prefilter struct {
	index     *formatIndex
	atLeast   keyspace.Confidence
	confirmed confirmedKeys
	known     lockSet // keys that a Watcher follows; they are not probed, unless something of them could not be read
	guesses   typeGuesses
	noProbe   map[string]bool // types of which the server does not return a first piece
	unread    unread
	threshold keyspace.Confidence // confidence that needs no second sign
	weakHits  int                 // number of passed keys below the threshold
	alike     *alike              // counts of possible locks
	idles     bool                // ask for the idle times of strings, before a read resets them
	deadlines bool                // ask for the deadlines of strings: most keys pass, and a short one needs no further read then
}

// merge adds the results of the workers.
func (f *prefilter) merge(all []*filterWorker) {
	for _, w := range all {
		f.unread.add(w.unread)
		f.weakHits += w.weakHits
		for typ := range w.newNoProbe {
			f.noProbe[typ] = true
		}
		for of, typ := range w.newGuesses {
			f.guesses.learn(of, typ)
		}
		for class, n := range w.skipped {
			f.alike.add(class, n)
		}
	}
}

// filterWorker filters the keys of some pages. It is for one goroutine.
type filterWorker struct {
	filter     *prefilter
	conn       meteredConn
	pause      func(ctx context.Context) error // before each request; nil: there is none
	probes     []probe
	pending    []probe         // of keys with another request to send
	newGuesses typeGuesses     // since the last merge
	newNoProbe map[string]bool // types whose first piece was denied since the last merge
	passed     []candidate     // keys worth reading
	unread     unread          // since the last merge
	weakHits   int             // number of passed keys below the threshold
	skipped    map[string]int  // keys of crowded classes since the last merge
}

// probe is one request about a key that no reply has ruled out yet: its type, or a piece of its value.
type probe struct {
	name, typ string // the type is "" if it is unknown
	typeKnown bool   // the server has returned the type; false = it is a guess
	shape     keyShape
	typeCmd   *redis.StatusCmd
	idleCmd   *redis.DurationCmd // before valueCmd; nil = its idle time is not asked for
	valueCmd  *redis.StringCmd
	clock     *redis.TimeCmd // before valueCmd; nil: the deadline is not asked for
	expiry    *redis.IntCmd  // after valueCmd, if clock is set
}

// run filters names until the channel is closed.
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

// filterBatch sends a request for each name and each pending key, and processes the
// replies.
func (w *filterWorker) filterBatch(ctx context.Context, names []string) error {
	if w.pause != nil {
		if err := w.pause(ctx); err != nil {
			return err
		}
	}
	w.enqueue(names)
	if len(w.probes) == 0 {
		return nil
	}
	err := w.conn.pipelined(ctx, "probe keys", func(pipe redis.Pipeliner) {
		var clock *redis.TimeCmd
		for i := range w.probes {
			if w.filter.deadlines && i%keysPerClock == 0 {
				clock = pipe.Time(ctx)
			}
			w.addProbe(ctx, pipe, &w.probes[i], clock)
		}
	})
	if err != nil {
		return err
	}
	for i := range w.probes {
		p := &w.probes[i]
		if p.valueCmd != nil {
			w.onProbe(p)
		} else if err := w.onType(p); err != nil {
			return err
		}
	}
	return nil
}

// enqueue makes a probe of each pending key and each name.
func (w *filterWorker) enqueue(names []string) {
	clear(w.probes)
	w.probes, w.pending = append(w.probes[:0], w.pending...), w.pending[:0]
	for _, name := range names {
		if k := w.filter.known[name]; k != nil && !k.partial || w.filter.index.isCompanion(name) {
			continue
		}
		shape := shapeOf(name)
		w.probes = append(w.probes, probe{name: name, typ: w.guessType(shape), shape: shape})
	}
}

// guessType returns the expected type of keys of a shape, "" if it is unknown.
func (w *filterWorker) guessType(of keyShape) string {
	if _, fresh := w.newGuesses[of]; fresh {
		return w.newGuesses.guess(of)
	}
	return w.filter.guesses.guess(of)
}

// addProbe queues the commands of a probe. With a clock it asks for the deadline of a string.
func (w *filterWorker) addProbe(ctx context.Context, pipe redis.Pipeliner, p *probe, clock *redis.TimeCmd) {
	p.typeCmd, p.valueCmd, p.clock = nil, nil, nil
	if p.typ == "" || !p.typeKnown && (w.probeDenied(p.typ) || w.filter.index.needOf(p.name, p.typ) != needProbe) {
		p.typeCmd = pipe.Type(ctx, p.name)
		return
	}
	if p.idleCmd == nil && p.typ == "string" && w.filter.idles && !w.conn.scanner.denied.has(cmdObject) {
		p.idleCmd = pipe.ObjectIdleTime(ctx, p.name)
	}
	p.valueCmd = p.firstPiece(ctx)
	_ = pipe.Process(ctx, p.valueCmd) // it only queues; an error is returned when the pipeline is sent
	if clock != nil && p.typ == "string" {
		p.clock, p.expiry = clock, redis.NewIntCmd(ctx, "pexpiretime", p.name)
		_ = pipe.Process(ctx, p.expiry)
	}
}

// probeDenied reports whether the server does not return first pieces of a type.
func (w *filterWorker) probeDenied(typ string) bool {
	return w.filter.noProbe[typ] || w.newNoProbe[typ]
}

// onType processes the type of a key. A key that is gone or not permitted is dropped.
// It is an error if the user may not send TYPE at all.
func (w *filterWorker) onType(p *probe) error {
	typ, err := p.typeCmd.Result()
	switch {
	case isCommandDenied(err):
		return fmt.Errorf("probe keys: %w", err)
	case isKeyDenied(err):
		w.unread[hiddenKey]++
		return nil
	case isRedirect(err):
		w.unread[movingKey]++
		return nil
	case err != nil, typ == "none":
		return nil
	}
	if w.filter.guesses[p.shape] != ambiguous && w.guessType(p.shape) != typ {
		w.newGuesses.learn(p.shape, typ)
	}
	p.typ, p.typeKnown = typ, true
	switch need := w.filter.index.needOf(p.name, typ); {
	case need == needFull, need == needProbe && w.probeDenied(typ):
		w.passed = append(w.passed, candidate{name: p.name, typ: p.typ})
	case need == needProbe:
		w.pending = append(w.pending, *p)
	}
	return nil
}

// onProbe processes the first piece of a value.
func (w *filterWorker) onProbe(p *probe) {
	piece, err := p.valueCmd.Result()
	switch {
	case err == nil:
		atLeast := w.filter.atLeast
		if w.filter.confirmed[p.name] != "" {
			atLeast = keyspace.Possible
		}
		sure := w.filter.index.bestProbe(p.name, p.typ, piece, max(w.filter.threshold, enough))
		if sure < atLeast || sure < enough && w.skips(p.name) {
			return
		}
		c := candidate{name: p.name, typ: p.typ, idle: p.idle(), probed: piece}
		if p.clock != nil && len(piece) < probeBytes { // it is the whole value
			size := new(redis.IntCmd)
			size.SetVal(int64(len(piece)))
			c.entry = w.conn.entryOf(keyRead{candidate: &c, clock: p.clock, value: p.valueCmd, size: size, expiry: p.expiry}, w.conn.answeredBy)
		}
		w.passed = append(w.passed, c)
		if sure < w.filter.threshold {
			w.weakHits++
		}
	case isWrongType(err): // the guess was wrong, or the type has changed
		w.retryType(p)
	case isCommandDenied(err):
		w.newNoProbe[p.typ] = true
		w.retryType(p)
	case isKeyDenied(err):
		w.unread[hiddenKey]++
	case isRedirect(err):
		w.unread[movingKey]++
	}
}

// idle returns for how many seconds the key has not changed at least; 0 = that is not known. The clock of
// idle times has whole seconds. A client that sets a string resets its idle time in any case.
func (p *probe) idle() uint32 {
	if p.idleCmd == nil || p.idleCmd.Err() != nil || p.typ != "string" {
		return 0
	}
	return uint32(max(0, p.idleCmd.Val()/time.Second-1))
}

// skips reports whether a possible lock is one of too many alike, and counts it.
func (w *filterWorker) skips(key string) bool {
	if w.filter.alike.counts == nil || w.filter.confirmed[key] != "" {
		return false
	}
	class := keyspace.AlikeClass(key)
	skip := w.filter.alike.skips(class, w.filter.alike.counts[class]+w.skipped[class])
	if skip {
		w.skipped[class]++
	}
	return skip
}

// retryType asks for the type of a key whose first piece was not returned.
func (w *filterWorker) retryType(p *probe) {
	w.pending = append(w.pending, probe{name: p.name, shape: p.shape})
}

// firstPiece returns the command that reads the first piece of a value. It takes constant
// time and, except for a huge single element, bounded memory.
func (p *probe) firstPiece(ctx context.Context) *redis.StringCmd {
	switch p.typ {
	case "hash":
		return redis.NewStringCmd(ctx, "hrandfield", p.name)
	case "set":
		return redis.NewStringCmd(ctx, "srandmember", p.name)
	case "zset":
		return redis.NewStringCmd(ctx, "zrandmember", p.name)
	case "list":
		return redis.NewStringCmd(ctx, "lindex", p.name, 0)
	default:
		return redis.NewStringCmd(ctx, "getrange", p.name, 0, probeBytes-1)
	}
}

// formatIndex finds the formats for a key, a million times per pass: by type, and by
// what they need to see. It is immutable.
type formatIndex struct {
	byType     map[string]*typeFormats  // by type
	companions []func(key string) bool  // the Companion functions of formats with any names
	besides    []func(name string) bool // those of formats whose names may be in a namespace
}

// typeFormats are the formats of one type.
type typeFormats struct {
	probed   prefixTable // a first piece may rule them out
	fullRead prefixTable // only the whole value may
	anyName  bool        // some of the probed formats match any name
}

// prefixTable maps the first byte of a name to formats. A name begins a key, or follows the
// namespace of an application in it. Most names have a first byte without formats.
type prefixTable struct {
	byFirstByte [256][]*keyspace.Format
	rest        []*keyspace.Format
}

// add adds a format.
func (t *prefixTable) add(f *keyspace.Format) {
	if f.Prefixes == nil {
		t.rest = append(t.rest, f)
		return
	}
	for c := range t.byFirstByte {
		if slices.ContainsFunc(f.Prefixes, func(prefix string) bool { return prefix[0] == byte(c) }) {
			t.byFirstByte[c] = append(t.byFirstByte[c], f)
		}
	}
}

// any reports whether is holds for one of the formats that can match a key with this name.
func (t *prefixTable) any(key string, is func(f *keyspace.Format) bool) bool {
	return keyspace.AnyName(key, func(name string) bool {
		return slices.ContainsFunc(t.byFirstByte[name[0]], func(f *keyspace.Format) bool { return f.HasName(name) && is(f) })
	}) || slices.ContainsFunc(t.rest, func(f *keyspace.Format) bool { return (f.Match == nil || f.Match(key)) && is(f) })
}

// has reports whether a format can match a key with this name.
func (t *prefixTable) has(key string) bool {
	return t.any(key, func(*keyspace.Format) bool { return true })
}

// newFormatIndex indexes formats, which must not change afterwards.
func newFormatIndex(formats []keyspace.Format) *formatIndex {
	x := &formatIndex{byType: make(map[string]*typeFormats)}
	for i := range formats {
		f := &formats[i]
		if f.Companion != nil && f.Prefixes == nil {
			x.companions = append(x.companions, f.Companion)
		} else if f.Companion != nil {
			x.besides = append(x.besides, f.Companion)
		}
		if f.Type != keyspace.AnyType {
			x.addFor(f, f.Type)
			continue
		}
		x.addFor(f, "string")
		for _, typ := range collections {
			x.addFor(f, typ)
		}
	}
	return x
}

// addFor adds a format for keys of a type.
func (x *formatIndex) addFor(f *keyspace.Format, typ string) {
	s := x.byType[typ]
	if s == nil {
		s = &typeFormats{}
		x.byType[typ] = s
	}
	if f.Probe == nil {
		s.fullRead.add(f)
		return
	}
	s.probed.add(f)
	s.anyName = s.anyName || f.Prefixes == nil && f.Match == nil
}

// isCompanion reports whether the name alone identifies a companion key.
func (x *formatIndex) isCompanion(key string) bool {
	is := func(some []func(string) bool, name string) bool {
		return slices.ContainsFunc(some, func(is func(string) bool) bool { return is(name) })
	}
	return is(x.companions, key) || keyspace.AnyName(key, func(name string) bool { return is(x.besides, name) })
}

// need is what must be read before a key can be ruled out.
type need uint8

const (
	needNone  need = iota // no format matches this type and name
	needProbe             // a first piece of the value may rule the key out
	needFull              // only the whole value may
)

// needOf returns what must be read of a key that is not a companion.
func (x *formatIndex) needOf(key, typ string) need {
	s := x.byType[typ]
	switch {
	case s == nil:
		return needNone
	case s.fullRead.has(key):
		return needFull
	case s.anyName || s.probed.has(key):
		return needProbe
	default:
		return needNone
	}
}

// bestProbe returns the highest confidence that the probed formats can still reach for
// a key. It stops at the first that reaches enough.
func (x *formatIndex) bestProbe(key, typ, first string, enough keyspace.Confidence) keyspace.Confidence {
	s := x.byType[typ]
	if s == nil {
		return keyspace.No
	}
	best := keyspace.No
	s.probed.any(key, func(f *keyspace.Format) bool {
		best = max(best, f.Probe(key, first))
		return best >= enough
	})
	return best
}

// typeGuesses maps the shape of a key name to a type. Keys with similar names mostly
// have the same type, so the type of most keys need not be requested, only checked.
// Wrong guesses cost time and nothing else.
type typeGuesses map[keyShape]string

// keyShape is a hash of a key name without its numbers and IDs.
type keyShape uint64

// maxShapes bounds the map: each name without numbers is a shape of its own.
const maxShapes = 1 << 14

// ambiguous is the type of a shape whose guess was wrong once.
const ambiguous = "mixed"

// guess returns the expected type of keys of a shape, "" if it is unknown.
func (g typeGuesses) guess(of keyShape) string {
	if typ := g[of]; typ != ambiguous {
		return typ
	}
	return ""
}

// learn records the type of a key of a shape.
func (g typeGuesses) learn(of keyShape, typ string) {
	known, ok := g[of]
	switch {
	case !ok && len(g) < maxShapes:
		g[of] = typ
	case ok && known != typ:
		g[of] = ambiguous
	}
}

// shapeOf hashes a name. All words that contain a digit, or that can be hexadecimal,
// count as the same word.
func shapeOf(key string) keyShape {
	h := uint64(fnvOffset)
	for i := 0; i < len(key); {
		if !wordByte(key[i]) {
			h = (h ^ uint64(key[i])) * fnvPrime
			i++
			continue
		}
		word, number, hex := uint64(fnvOffset), false, true
		from := i
		for ; i < len(key) && wordByte(key[i]); i++ {
			c := key[i]
			digit := '0' <= c && c <= '9'
			number = number || digit
			hex = hex && (digit || 'a' <= c|0x20 && c|0x20 <= 'f')
			word = (word ^ uint64(c)) * fnvPrime
		}
		if number || hex && i-from >= 4 {
			word = 0
		}
		h = (h ^ word) * fnvPrime
	}
	return keyShape(h)
}

// Parameters of the FNV-1a hash (Fowler, Noll, Vo).
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func wordByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
