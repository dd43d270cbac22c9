package recording

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"locktop/keyspace"
)

// Walk shows a visitor each frame that is later than from and not later than to, after the
// state at from, or the first one, and before the state at to. Instead of all frames of a
// segment load gets its index, if there is one; a nil load gets none.
func (r *Reader) Walk(from, to time.Time, v Visitor, load Load) error {
	r.stop = func() {}
	defer func() {
		r.stop()
		r.stop, r.skipped = nil, true // frames may be lost
	}()
	state, err := r.At(from, time.Time{})
	if err != nil {
		return err
	}
	v.State(state)
	for {
		if next, due := r.due(to); due && load != nil {
			if show := r.index(next, to, load); show != nil {
				show()
				r.open, r.skipped = next, true
				continue
			}
		}
		if !r.advance(to) {
			break
		}
		if err := r.segment.visit(v); err != nil {
			continue // advance reports it
		}
		r.shown = keyspace.Snapshot{}
	}
	state, err = r.At(to, time.Time{})
	if err == nil {
		v.State(state)
	}
	return err
}

// Load reads an index, in the background, and returns what shows it to a visitor; nil: it is malformed.
type Load func(index []byte) (show func())

// index returns what shows the index of a segment that ends before to; nil if there is none.
func (r *Reader) index(n int, to time.Time, load Load) func() {
	intact := r.skipped || endOfSegment(r.segment.end)
	if !intact || !r.alwaysOn || n+1 >= len(r.segments) || r.segments[n+1].start.After(to) {
		return nil
	}
	ahead := func(segment, before string) <-chan func() { // in the background
		index := make(chan func(), 1)
		go func() { index <- readIndex(segment, before, load) }()
		return index
	}
	index := r.ahead
	if r.aheadOf != n {
		index = ahead(r.segments[n].name, r.segments[r.open].name)
	}
	r.aheadOf, r.ahead = n+1, ahead(r.segments[n+1].name, r.segments[n].name)
	return <-index
}

// visit applies the next frame and shows it to a visitor.
func (r *segmentReader) visit(v Visitor) error {
	first, before := !r.started, r.at
	events, err := r.step(true)
	if err != nil {
		return err
	}
	if first { // a gap may be before it
		s := r.snapshot()
		s.Events, s.Notices = events, r.applied.Notices
		v.State(s)
		return nil
	}
	if ending := r.ending(events); len(ending) > 0 {
		v.Add(keyspace.Delta{Snapshot: keyspace.Snapshot{At: before, Locks: ending}})
	}
	v.Add(r.delta(events))
	return nil
}

// delta returns the frame that was applied last, with its events.
func (r *segmentReader) delta(events []keyspace.Event) keyspace.Delta {
	f := &r.applied
	d := keyspace.Delta{Snapshot: r.servers}
	d.At, d.Events, d.Notices = r.at, events, f.Notices
	for i := range f.Locks {
		d.Locks = append(d.Locks, &f.Locks[i])
	}
	for _, at := range f.Gone {
		d.Gone = append(d.Gone, r.before[at].lock.ID())
	}
	return d
}

// ending returns the locks whose holds ended in the frame that was applied last, as they were before.
func (r *segmentReader) ending(events []keyspace.Event) (locks []*keyspace.Lock) {
	for i := range events {
		if !events[i].Kind.Ends() {
			continue
		}
		if at, known := findEntry(r.before, events[i].Lock.ID()); known {
			locks = append(locks, r.before[at].current())
		}
	}
	return locks
}

// Visitor gets the frames of a recording in their order.
type Visitor interface {
	// Add gets a frame. It has the locks that are new or changed, but not those that were only
	// renewed: a frame before the end of a hold has its lock with all renewals.
	Add(keyspace.Delta)
	// State gets all locks of a moment, at the begin, at the end and where a segment begins.
	State(keyspace.Snapshot)
}

// Indexer makes the indexes of segments. An index is what a Visitor keeps of the frames of a
// segment, in its own form.
type Indexer interface {
	Visitor
	// Index returns the index of what was added since the last call.
	Index() []byte
}

// The index of a segment is a file beside it: a header, and as a zstd frame what the Indexer returned.
const (
	indexSuffix  = ".index"
	indexVersion = 5
	indexWindow  = 256 << 10 // bytes of a zstd window: a larger one takes 7 MB more to compress, and saves nothing
)

func indexName(segment string) string {
	return strings.TrimSuffix(segment, segmentSuffix) + indexSuffix
}

// indexHeader returns the first line of an index: its version, and the segment that its Indexer has seen before.
func indexHeader(before string) []byte {
	return fmt.Appendf(nil, "locktop index %d %s\n", indexVersion, before)
}

// decompressor decompresses the indexes, and verifies their checksums.
var decompressor = sync.OnceValue(func() *zstd.Decoder {
	zip, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked)) // the options are valid
	return zip
})

// readIndex loads the index of a segment, and returns what shows it; nil if it is damaged, or is none for a
// reader of the segment that is before it.
func readIndex(segment, before string, load Load) (show func()) {
	file, err := os.ReadFile(indexName(segment))
	frame, ours := bytes.CutPrefix(file, indexHeader(filepath.Base(before)))
	if err != nil || !ours {
		return nil
	}
	index, err := decompressor().DecodeAll(frame, nil)
	if err != nil {
		return nil
	}
	return load(index)
}

// indexing makes the indexes of segments that follow each other, in the background.
type indexing struct {
	dir     string
	indexer Indexer
	before  string // the segment that the indexer has seen last; empty: none
	done    chan struct{}
	err     error // of the last segment; its index is missing, and so is that of the next one
	size    int64 // of the last index
}

// begin makes the index of a segment that has ended.
func (x *indexing) begin(segment string) {
	x.done = make(chan struct{})
	go func() {
		defer close(x.done)
		x.size, x.err = x.write(segment)
		x.before = segment
	}()
}

// wait waits until the index is made.
func (x *indexing) wait() {
	if x != nil && x.done != nil {
		<-x.done
	}
}

func (x *indexing) write(segment string) (size int64, err error) {
	f, r, err := segmentRef{name: filepath.Join(x.dir, segment)}.read()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for err == nil {
		err = r.visit(x.indexer)
	}
	index := x.indexer.Index()
	if !endOfSegment(err) {
		return 0, err
	}
	if x.before == "" {
		return 0, nil
	}
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(indexWindow))
	if err != nil {
		return 0, err
	}
	file := zip.EncodeAll(index, indexHeader(x.before))
	return int64(len(file)), os.WriteFile(filepath.Join(x.dir, indexName(segment)), file, 0o600)
}
