package recording

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"locktop/keyspace"
)

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

// The index of a segment is a file beside it: what the Indexer returned, as a gzip stream with
// the name of the segment before it, and the version of the index as the comment.
const indexSuffix, indexVersion = ".index", "4"

func indexName(segment string) string {
	return strings.TrimSuffix(segment, segmentSuffix) + indexSuffix
}

// readIndex loads the index of a segment, and returns what shows it; nil if it is damaged, or is none for a
// reader of the segment that is before it.
func readIndex(segment, before string, load Load) (show func()) {
	f, err := os.Open(indexName(segment))
	if err != nil {
		return nil
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil || zip.Name != filepath.Base(before) || zip.Comment != indexVersion {
		return nil
	}
	show = load(io.LimitReader(zip, maxUnpacked))
	if _, err := io.Copy(io.Discard, zip); err != nil { // its checksum is wrong
		return nil
	}
	return show
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
	var text bytes.Buffer
	zip, err := gzip.NewWriterLevel(&text, gzip.BestSpeed)
	if err != nil {
		return 0, err
	}
	zip.Name, zip.Comment = x.before, indexVersion
	_, err = zip.Write(index)
	if err = errors.Join(err, zip.Close()); err != nil {
		return 0, err
	}
	return int64(text.Len()), os.WriteFile(filepath.Join(x.dir, indexName(segment)), text.Bytes(), 0o600)
}
