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
		}
		block = append(block, escapeDelta(d, unescapeText))
	}
}
