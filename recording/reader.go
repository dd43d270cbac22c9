package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
	"time"

	"locktop/keyspace"
)

// ErrFormat says that a file is no recording, or one of another version.
var ErrFormat = errors.New("not a recording that this version of locktop can read")

// Reader finds pictures in a recording. It is for one goroutine at a time.
type Reader struct {
	from   io.ReaderAt
	blocks []place
	damage error

	open   int // the block that is unpacked; -1: none
	frames []keyspace.Change
}

// place is where a block is in the file.
type place struct {
	at, size    int64
	first, last time.Time
}

// Open looks through a recording of so many bytes. Of one that is damaged, or
// was cut off, it reads what comes before the damage; see [Reader.Damage]. It
// returns ErrFormat if there is nothing to read at all.
func Open(from io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{from: from, open: -1}
	begin := make([]byte, len(magic))
	if _, err := from.ReadAt(begin, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	if string(begin) != magic {
		return nil, ErrFormat
	}
	at := int64(len(magic))
	for at < size {
		p, err := r.check(at, size)
		if err != nil {
			r.damage = fmt.Errorf("damaged at byte %d of %d: %w", at, size, err)
			break
		}
		r.blocks = append(r.blocks, p)
		at = p.at + p.size
	}
	if len(r.blocks) == 0 {
		return nil, fmt.Errorf("%w: %w", ErrFormat, errors.Join(errors.New("there is no picture in it"), r.damage))
	}
	return r, nil
}

// check reads the block that begins at a byte, and makes sure that it is whole.
func (r *Reader) check(at, size int64) (place, error) {
	if size-at < headerSize {
		return place{}, errors.New("it was cut off")
	}
	var h header
	raw := make([]byte, headerSize)
	if _, err := r.from.ReadAt(raw, at); err != nil {
		return place{}, err
	}
	_ = binary.Read(bytes.NewReader(raw), binary.BigEndian, &h) // it has the size
	p := place{at + headerSize, int64(h.Size), time.Unix(0, h.First), time.Unix(0, h.Last)}
	if p.size > size-p.at {
		return place{}, errors.New("it was cut off")
	}
	if n := len(r.blocks); p.last.Before(p.first) || n > 0 && p.first.Before(r.blocks[n-1].last) {
		return place{}, errors.New("its times are out of order")
	}
	packed, err := r.read(p)
	if err != nil {
		return place{}, err
	}
	if crc32.ChecksumIEEE(packed) != h.Sum {
		return place{}, errors.New("its checksum is wrong")
	}
	return p, nil
}

func (r *Reader) read(p place) ([]byte, error) {
	packed := make([]byte, p.size)
	_, err := r.from.ReadAt(packed, p.at)
	if errors.Is(err, io.EOF) {
		err = nil // the last block may end with the file; a shorter one fails its checksum
	}
	return packed, err
}

// Damage says what is wrong with the file, nil if nothing is.
func (r *Reader) Damage() error { return r.damage }

// Span returns the times of the first and the last picture.
func (r *Reader) Span() (first, last time.Time) {
	return r.blocks[0].first, r.blocks[len(r.blocks)-1].last
}

// At returns the picture of a moment: the newest that is not later or, before
// the first, that. Its events are those since another moment, which may be
// zero: then it has none.
func (r *Reader) At(t, since time.Time) (keyspace.Snapshot, error) {
	n := max(0, sort.Search(len(r.blocks), func(i int) bool { return r.blocks[i].first.After(t) })-1)
	var events []keyspace.Event
	from := n
	for !since.IsZero() && from > 0 && r.blocks[from].first.After(since) {
		from--
	}
	var snap keyspace.Snapshot
	for i := from; i <= n; i++ {
		frames, err := r.unpack(i)
		if err != nil {
			return keyspace.Snapshot{}, err
		}
		shown := max(1, sort.Search(len(frames), func(i int) bool { return frames[i].At.After(t) }))
		if !since.IsZero() {
			events = append(events, eventsOf(frames[:shown], since)...)
		}
		if i == n {
			snap = keyspace.Join(frames[:shown]).After(keyspace.Snapshot{})
		}
	}
	snap.Events, snap.Notices = events, nil
	return snap, nil
}

// eventsOf are the events of pictures that are later than a moment.
func eventsOf(frames []keyspace.Change, since time.Time) []keyspace.Event {
	var all []keyspace.Event
	for i := range frames {
		if frames[i].At.After(since) {
			all = append(all, frames[i].Events...)
		}
	}
	return all
}

// unpack returns the pictures of a block. Those of the last one are kept.
func (r *Reader) unpack(n int) ([]keyspace.Change, error) {
	if r.open == n {
		return r.frames, nil
	}
	packed, err := r.read(r.blocks[n])
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	frames, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("read the recording: block %d: %w", n+1, err)
	}
	if !slices.IsSortedFunc(frames, func(a, b keyspace.Change) int { return a.At.Compare(b.At) }) {
		return nil, fmt.Errorf("read the recording: block %d: its times are out of order", n+1)
	}
	r.open, r.frames = n, frames
	return frames, nil
}
