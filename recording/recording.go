// Package recording keeps the snapshots of a keyspace in a file, and finds them
// again by their time.
//
// A file is a line that names the format and its version, then blocks. Each block
// stands for itself: the first snapshot in full, of the others what has changed,
// compressed, with a checksum. So a file that was cut off, or damaged, is good up
// to there, and to look at a moment takes the reading of one block.
package recording

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"locktop/keyspace"
)

// magic begins every file. Another version would be another number.
const magic = "locktop recording 1\n"

// Bounds of a block.
const (
	blockSpan   = 10 * time.Second
	blockFrames = 256
	blockMax    = 256 << 20 // bytes, unpacked; more is no block of ours
)

// header stands before each block.
type header struct {
	Size  uint32 // of the block, packed
	Sum   uint32 // CRC-32 of it
	First int64  // the times of its first and last snapshots, in ns since 1970
	Last  int64
}

const headerSize = 24

// Writer writes a recording. It is for one goroutine at a time.
type Writer struct {
	out           io.Writer
	headerWritten bool
	block         []keyspace.Delta
	before        keyspace.Snapshot
	first         time.Time
}

// NewWriter returns a writer. Nothing is written before the first block is full.
func NewWriter(to io.Writer) *Writer { return &Writer{out: to} }

// Add takes in the next snapshot. Pictures must be added in the order of their
// times.
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

// Flush writes what was added so far. It has to be called at the end.
func (w *Writer) Flush() error {
	if len(w.block) == 0 {
		return nil
	}
	packed, err := pack(w.block)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	var buf bytes.Buffer
	if !w.headerWritten {
		buf.WriteString(magic)
	}
	h := header{uint32(len(packed)), crc32.ChecksumIEEE(packed), w.first.UnixNano(), w.before.At.UnixNano()}
	_ = binary.Write(&buf, binary.BigEndian, h) // a buffer takes everything
	buf.Write(packed)
	if _, err := w.out.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	w.headerWritten, w.block = true, nil
	return nil
}

func pack(block []keyspace.Delta) ([]byte, error) {
	var out bytes.Buffer
	squeeze, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if err := gob.NewEncoder(squeeze).Encode(block); err != nil {
		return nil, err
	}
	if err := squeeze.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpack(packed []byte) ([]keyspace.Delta, error) {
	var block []keyspace.Delta
	unpacked := io.LimitReader(flate.NewReader(bytes.NewReader(packed)), blockMax)
	if err := gob.NewDecoder(unpacked).Decode(&block); err != nil {
		return nil, err
	}
	if len(block) == 0 {
		return nil, errors.New("it is empty")
	}
	return block, nil
}
