package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/internal/humanize"
	"locktop/keyspace"
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
	recCtx, stop := ctx, context.CancelFunc(func() {})
	if o.duration > 0 {
		recCtx, stop = context.WithTimeout(ctx, o.duration)
	}
	defer stop()
	rec := &recorder{source: source, writer: recording.NewWriter(f, o.redact), every: o.every, notes: p.notes}
	if err := rec.run(recCtx); err != nil {
		return err
	}
	p.notes.note("%s in %s", humanize.Plural(rec.snapshots, "snapshot"), name)
	if ctx.Err() == nil && rec.last.Scanned() && !rec.last.Complete {
		return incomplete(rec.last)
	}
	p.notes.problems(rec.last)
	return ctx.Err()
}

// recorder writes snapshots into a recording.
type recorder struct {
	source    tui.Source
	writer    *recording.Writer
	every     time.Duration
	notes     messages
	snapshots int
	last      keyspace.Snapshot
	lost      bool
}

// run records until ctx ends, which is not an error, and finishes the file.
func (r *recorder) run(ctx context.Context) error {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		snap, err := r.source.Snapshot(ctx)
		switch {
		case ctx.Err() != nil:
			return r.writer.Close()
		case err != nil:
			if !r.lost {
				r.notes.note("no snapshot: %v; trying again until there is one", err)
			}
			r.lost = true
		default:
			r.lost, r.last = false, snap
			r.snapshots++
			if err := r.writer.Add(snap); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return r.writer.Close()
		case <-tick.C:
		}
	}
}
