package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"locktop/internal/humanize"
	"locktop/keyspace/incident"
	"locktop/keyspace/recording"
)

// Smallest limits of a recording: a segment of 20 min must fit.
const (
	minKeep     = time.Hour
	minKeepSize = 64 << 20
)

// exportRecording configures the recordings of an export.
type exportRecording struct {
	dir  string
	keep time.Duration
	size byteSize
	set  *pflag.FlagSet
}

func (o *exportRecording) flags() *pflag.FlagSet {
	o.size = recording.DefaultKeepSize
	o.set = flagSection("Recording")
	o.set.StringVar(&o.dir, "record", "", "record the locks, without tokens, to segments in this `directory`, for locktop replay; several targets have a directory each in it")
	o.set.DurationVar(&o.keep, "keep", recording.DefaultKeep, "delete the segments that are older than this `time`")
	o.set.Var(&o.size, "keep-size", "delete the oldest segments above this `size` for each target, as 500MB or 1GiB")
	return o.set
}

// check returns an error for options that contradict each other.
func (o *exportRecording) check() error {
	switch {
	case o.dir == "" && (o.set.Changed("keep") || o.set.Changed("keep-size")):
		return usageErrorf("", "--keep and --keep-size need --record DIRECTORY")
	case o.keep < minKeep:
		return usageErrorf("", "--keep must be at least %s", humanize.Setting(minKeep))
	case o.size < minKeepSize:
		return usageErrorf("", "--keep-size must be at least %d MiB", minKeepSize>>20)
	}
	return nil
}

// record opens the recordings of the targets, if they are wanted.
func (e *export) record() error {
	o := e.options.record
	if o.dir == "" {
		return nil
	}
	recorded := make(map[string]string) // targets by directory
	for _, t := range e.targets {
		dir := o.dir
		if len(e.targets) > 1 {
			dir = filepath.Join(dir, dirName(t.name))
		}
		if other, taken := recorded[dir]; taken {
			return usageErrorf("give them names with --context", "--record: %s and %s would have the same directory, %s", other, t.name, dir)
		}
		recorded[dir] = t.name
		w, err := recording.NewDirWriter(dir, recording.DirOptions{
			Keep: o.keep, KeepSize: int64(o.size), Report: func(text string) { e.note("%s", text) },
			Index: func() recording.Indexer { return incident.NewIndexer() },
		})
		if err != nil {
			return fmt.Errorf("--record: %w", err)
		}
		t.recording, t.selection.past = w, w.Past().Lock
	}
	return nil
}

// dirName returns the name of a directory for a target: prod, or 10.0.0.5-6379-0.
func dirName(target string) string {
	if _, address, ok := strings.Cut(target, "://"); ok {
		target = address
	}
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_':
			return r
		default:
			return '-'
		}
	}, target)
	return strings.Trim(name, ".-")
}

// closeRecordings writes the last snapshots.
func (e *export) closeRecordings() {
	for _, t := range e.targets {
		if t.recording == nil {
			continue
		}
		if err := t.recording.Close(); err != nil {
			e.note("--record: %v", err)
		}
	}
}

// byteSize is a flag with a number of bytes. It accepts 500MB, 1GiB and plain numbers.
type byteSize int64

// byteUnit is a unit of a byteSize.
type byteUnit struct {
	name string
	size int64
}

// byteUnits returns the units, the largest first.
func byteUnits() []byteUnit {
	return []byteUnit{{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1}, {"", 1}}
}

// String implements [pflag.Value].
func (s *byteSize) String() string {
	for _, u := range byteUnits() {
		if n := int64(*s) / u.size; n > 0 && n*u.size == int64(*s) {
			return strconv.FormatInt(n, 10) + u.name
		}
	}
	return "0B"
}

// Set implements [pflag.Value].
func (s *byteSize) Set(text string) error {
	for _, u := range byteUnits() {
		number, ok := strings.CutSuffix(strings.ToLower(text), strings.ToLower(u.name))
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > (1<<50)/u.size {
			break
		}
		*s = byteSize(n * u.size)
		return nil
	}
	return errors.New("a size is like 500MB or 1GiB")
}

// Type implements [pflag.Value].
func (s *byteSize) Type() string { return "size" }
