package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/keyspace/recording"
	"locktop/tui"
)

// recordOptions configures a recording.
type recordOptions struct {
	duration time.Duration
	every    time.Duration
	redact   bool
}

func (t *recordOptions) flags() *pflag.FlagSet {
	set := flagSection("Recording")
	set.DurationVar(&t.duration, "for", 0, "stop after this `time` (default: when interrupted)")
	set.DurationVar(&t.every, "every", 250*time.Millisecond, "`time` between two snapshots; the events between them are recorded, too")
	set.BoolVar(&t.redact, "redact", false, "hide the secret parts of tokens: with a token, others could release the lock")
	return set
}

func (p *program) recordCommand() *cobra.Command {
	var o recordOptions
	var monitor monitorFlag
	return p.readCommand(&cobra.Command{
		Use:   "record FILE [flags]",
		Short: "Record the locks to a file, for replay",
		Long: `Records the content of the screen to a new file until it is interrupted. locktop
replay shows the recording. The file contains the names of keys and owners and,
without --redact, whole tokens. Only its owner can read it. It consists of gzipped JSON
lines: zcat FILE | jq reads it.`,
		Example: `  locktop record night.lockrec
  locktop record --redact --for 10m ticket-4711.lockrec`,
		Args: func(cmd *cobra.Command, args []string) error { return oneArgument(cmd, args, "file") },
	}, o.check, func(ctx context.Context, r *reading, args []string) error {
		source, err := monitor.monitored(ctx, r, r.watchOf(r.target, r.optionsOf(r.target)))
		if err != nil {
			return err
		}
		return p.record(ctx, r.selected(source), o, args[0])
	}, o.flags(), monitor.flags())
}

func (o *recordOptions) check() error {
	if o.every < 50*time.Millisecond || o.duration < 0 {
		return usageErrorf("", "--every must be at least 50ms, and --for must not be negative")
	}
	return nil
}

func (p output) record(ctx context.Context, source tui.Source, o recordOptions, name string) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	recCtx, stop := context.WithTimeout(ctx, cmp.Or(o.duration, never))
	defer stop()
	last, n, err := p.recordUntil(recCtx, source, recording.NewWriter(f, o.redact), o.every)
	if err != nil {
		return err
	}
	p.notes.note("%s in %s", humanize.Plural(n, "snapshot"), name)
	if ctx.Err() == nil && last.Scanned() && !last.Complete {
		return incomplete(last)
	}
	p.notes.problems(last)
	return ctx.Err()
}

// recordUntil records until ctx ends, which is not an error, and finishes the file. It returns the last snapshot, and
// their number.
func (p output) recordUntil(ctx context.Context, source tui.Source, to *recording.Writer, every time.Duration) (last keyspace.Snapshot, n int, err error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for lost := false; ctx.Err() == nil; {
		snap, err := source.Snapshot(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !lost {
				p.notes.note("no snapshot: %v; trying again until there is one", err)
			}
			lost = true
		default:
			lost, last = false, snap
			n++
			if err := to.Add(snap); err != nil {
				return last, n, err
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return last, n, to.Close()
}

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
	o.set = flagSection("Recording")
	o.set.StringVar(&o.dir, "record", "", "record the locks, without tokens, to segments in this `directory`, for locktop replay; several targets have a directory each in it")
	o.set.DurationVar(&o.keep, "keep", recording.DefaultKeep, "delete the segments that are older than this `time`")
	o.set.Func("keep-size", "delete the oldest segments above this `size` for each target, as 500MB or 1GiB", o.size.Set)
	o.set.Lookup("keep-size").DefValue = fmt.Sprintf("%dGiB", recording.DefaultKeepSize>>30)
	o.size = recording.DefaultKeepSize
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
			Keep: o.keep, KeepSize: int64(o.size), Report: func(text string) { e.notes.note("%s", text) },
			Index: func() recording.Indexer { return incident.NewIndexer() },
		})
		if err != nil {
			return fmt.Errorf("--record: %w", err)
		}
		t.recording, t.selection.scan.Past = w, w.Past().Lock
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
			e.notes.note("--record: %v", err)
		}
	}
}

// byteSize is a flag with a number of bytes. It accepts 500MB, 1GiB and plain numbers.
type byteSize int64

// Set parses the value of the flag.
func (s *byteSize) Set(text string) error {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1}, {"", 1}} {
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
