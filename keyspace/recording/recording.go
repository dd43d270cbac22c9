// Package recording stores snapshots in a file and finds them by their time.
//
// A file is a sequence of gzip members, so `zcat FILE | jq` reads it. Each member is
// one block of JSON lines: the first line has all locks, each other line a delta. The
// header of the member holds the size, the checksum and the times of the block. A
// reader therefore finds a time without unpacking earlier blocks, and reads a
// truncated or damaged file up to the damage.
package recording

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
	"time"

	"locktop/keyspace"
)

// Limits of a block.
const (
	blockSpan   = 10 * time.Second
	blockFrames = 256
	blockMax    = 256 << 20 // bytes, unpacked
)

// A member begins with the fixed part of a gzip header and one extra field, which
// contains a header. The second byte of the field's ID is the version of the format.
const (
	memberStart = "\x1f\x8b\x08\x04"
	fieldID     = "L2"
	fieldStart  = 12 // offset of the extra field in the member
	headerSize  = 24
	prefixSize  = fieldStart + 4 + headerSize

	oldMagic = "locktop recording 1\n" // version 1 was not gzip
)

// header describes a block.
type header struct {
	Size  uint32 // bytes of the member after the header
	Sum   uint32 // CRC-32 of these bytes
	First int64  // times of the first and the last snapshot, in ns since 1970
	Last  int64
}

// Writer writes a recording. It is not safe for concurrent use.
type Writer struct {
	out    io.Writer
	block  []keyspace.Delta
	before keyspace.Snapshot
	first  time.Time
}

// NewWriter returns a Writer. The first write to to happens when a block is full.
func NewWriter(to io.Writer) *Writer { return &Writer{out: to} }

// Add adds the next snapshot. Snapshots must be in the order of their times.
func (w *Writer) Add(s keyspace.Snapshot) error {
	if len(w.block) > 0 && (s.At.Sub(w.first) >= blockSpan || len(w.block) >= blockFrames) {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	var before keyspace.Snapshot
	if len(w.block) > 0 {
		before = w.before
	} else {
		w.first = s.At
	}
	w.block = append(w.block, keyspace.DeltaOf(before, s))
	w.before = s
	return nil
}

// Flush writes the snapshots of the current block. The caller must call it at the end.
func (w *Writer) Flush() error {
	if len(w.block) == 0 {
		return nil
	}
	member, err := pack(w.block)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if _, err := w.out.Write(member); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	w.block = nil
	return nil
}

// pack returns the gzip member of a block.
func pack(block []keyspace.Delta) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	zip.Extra = make([]byte, 4+headerSize)
	copy(zip.Extra, fieldID)
	binary.LittleEndian.PutUint16(zip.Extra[2:], headerSize)
	lines := json.NewEncoder(zip)
	lines.SetEscapeHTML(false)
	for _, d := range block {
		if err := lines.Encode(escapeDelta(d, escapeText)); err != nil {
			return nil, err
		}
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	member := out.Bytes()
	rest := member[prefixSize:]
	h := header{uint32(len(rest)), crc32.ChecksumIEEE(rest), block[0].At.UnixNano(), block[len(block)-1].At.UnixNano()}
	_, err := binary.Encode(member[prefixSize-headerSize:], binary.BigEndian, h)
	return member, err
}

// unpack reads the block of a member; rest is the member after the header.
func unpack(rest []byte) ([]keyspace.Delta, error) {
	var block []keyspace.Delta
	lines := json.NewDecoder(io.LimitReader(flate.NewReader(bytes.NewReader(rest)), blockMax))
	for {
		var d keyspace.Delta
		switch err := lines.Decode(&d); {
		case errors.Is(err, io.EOF) && len(block) > 0:
			return block, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("it is empty")
		case err != nil:
			return nil, err
		case slices.Contains(d.Locks, nil):
			return nil, errors.New("one of its locks is null")
		}
		block = append(block, escapeDelta(d, unescapeText))
	}
}

// ErrFormat means that a file is not a recording, or has another version.
var ErrFormat = errors.New("not a recording that this version of locktop can read")

// Reader finds snapshots in a recording. It is not safe for concurrent use.
type Reader struct {
	file   io.ReaderAt
	blocks []blockRef
	damage error

	openBlock int // the block that is unpacked in deltas; -1: none
	deltas    []keyspace.Delta
}

// blockRef is the position of a block in the file.
type blockRef struct {
	offset, size int64
	first, last  time.Time
}

// Open checks all blocks of a recording of size bytes. If a recording is damaged or
// truncated, the part before the damage is readable; see [Reader.Damage]. Open
// returns ErrFormat if nothing is readable.
func Open(file io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{file: file, openBlock: -1}
	begin := make([]byte, len(oldMagic))
	if _, err := file.ReadAt(begin, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	switch {
	case string(begin) == oldMagic:
		return nil, fmt.Errorf("%w: it has format 1, of an earlier version", ErrFormat)
	case !bytes.HasPrefix(begin, []byte(memberStart)):
		return nil, ErrFormat
	}
	for at := int64(0); at < size; {
		p, err := r.checkBlock(at, size)
		if err != nil {
			r.damage = fmt.Errorf("damaged at byte %d of %d: %w", at, size, err)
			break
		}
		r.blocks = append(r.blocks, p)
		at = p.offset + p.size
	}
	if len(r.blocks) == 0 {
		return nil, fmt.Errorf("%w: it has no snapshot: %w", ErrFormat, r.damage)
	}
	return r, nil
}

// checkBlock reads the block at offset at and verifies its checksum.
func (r *Reader) checkBlock(at, size int64) (blockRef, error) {
	if size-at < prefixSize {
		return blockRef{}, errors.New("it was cut off")
	}
	raw := make([]byte, prefixSize)
	if _, err := r.file.ReadAt(raw, at); err != nil {
		return blockRef{}, err
	}
	if !bytes.HasPrefix(raw, []byte(memberStart)) || !bytes.HasPrefix(raw[fieldStart:], []byte(fieldID)) {
		return blockRef{}, errors.New("no block begins there")
	}
	var h header
	_, _ = binary.Decode(raw[prefixSize-headerSize:], binary.BigEndian, &h) // the sizes agree
	p := blockRef{at + prefixSize, int64(h.Size), time.Unix(0, h.First), time.Unix(0, h.Last)}
	if p.size > size-p.offset {
		return blockRef{}, errors.New("it was cut off")
	}
	if n := len(r.blocks); p.last.Before(p.first) || n > 0 && p.first.Before(r.blocks[n-1].last) {
		return blockRef{}, errors.New("its times are out of order")
	}
	packed, err := r.readBlock(p)
	if err != nil {
		return blockRef{}, err
	}
	if crc32.ChecksumIEEE(packed) != h.Sum {
		return blockRef{}, errors.New("its checksum is wrong")
	}
	return p, nil
}

func (r *Reader) readBlock(p blockRef) ([]byte, error) {
	packed := make([]byte, p.size)
	_, err := r.file.ReadAt(packed, p.offset)
	if errors.Is(err, io.EOF) {
		err = nil // the last block may end with the file; the checksum detects a short one
	}
	return packed, err
}

// Damage returns what is wrong with the file, or nil.
func (r *Reader) Damage() error { return r.damage }

// Span returns the times of the first and the last snapshot.
func (r *Reader) Span() (first, last time.Time) {
	return r.blocks[0].first, r.blocks[len(r.blocks)-1].last
}

// At returns the newest snapshot that is not later than t, or the first snapshot if
// all are later. Its events are those after since; with a zero since it has none.
func (r *Reader) At(t, since time.Time) (keyspace.Snapshot, error) {
	n := max(0, sort.Search(len(r.blocks), func(i int) bool { return r.blocks[i].first.After(t) })-1)
	var events []keyspace.Event
	from := n
	for !since.IsZero() && from > 0 && r.blocks[from].first.After(since) {
		from--
	}
	var snap keyspace.Snapshot
	for i := from; i <= n; i++ {
		deltas, err := r.unpack(i)
		if err != nil {
			return keyspace.Snapshot{}, err
		}
		shown := max(1, sort.Search(len(deltas), func(i int) bool { return deltas[i].At.After(t) }))
		if !since.IsZero() {
			events = append(events, eventsOf(deltas[:shown], since)...)
		}
		if i == n {
			snap = keyspace.MergeDeltas(deltas[:shown]).Apply(keyspace.Snapshot{})
		}
	}
	snap.Events, snap.Notices = events, nil
	return snap, nil
}

// eventsOf returns the events of the snapshots after since.
func eventsOf(deltas []keyspace.Delta, since time.Time) []keyspace.Event {
	var all []keyspace.Event
	for i := range deltas {
		if deltas[i].At.After(since) {
			all = append(all, deltas[i].Events...)
		}
	}
	return all
}

// unpack returns the snapshots of a block and keeps them for the next call.
func (r *Reader) unpack(n int) ([]keyspace.Delta, error) {
	if r.openBlock == n {
		return r.deltas, nil
	}
	packed, err := r.readBlock(r.blocks[n])
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	deltas, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("read the recording: block %d: %w", n+1, err)
	}
	if !slices.IsSortedFunc(deltas, func(a, b keyspace.Delta) int { return a.At.Compare(b.At) }) {
		return nil, fmt.Errorf("read the recording: block %d: its times are out of order", n+1)
	}
	r.openBlock, r.deltas = n, deltas
	return deltas, nil
}
