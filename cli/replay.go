package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"locktop/keyspace/recording"
	"locktop/tui"
)

func (p *program) replayCommand() *cobra.Command {
	var s selection
	var look screenFlags
	cmd := &cobra.Command{
		Use:   "replay FILE [flags]",
		Short: "The screen on a recording",
		Long: `Shows a recording as the screen would have shown it: space pauses, < and > go
back and forward, + and - play faster and slower, :at 12:31:07 goes to a moment.
A file that is damaged or was cut off is shown up to there.`,
		Example:               `  locktop replay night.lockrec`,
		Args:                  oneFile,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.replay(cmd.Context(), &s, &look, args[0])
		},
	}
	cmdFlags(cmd, s.flags(), look.flags())
	return cmd
}

// oneFile checks that the only argument is the name of a file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageErrorf("see "+cmd.CommandPath()+" --help", "%s takes one file", cmd.CommandPath())
	}
	return nil
}

func (p *program) replay(ctx context.Context, s *selection, look *screenFlags, name string) error {
	if err := errors.Join(s.check(), look.check()); err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	r, err := recording.Open(f, info.Size())
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	if err := r.Damage(); err != nil {
		p.notes.warning("%s is %v; what comes before is shown", name, err)
	}
	if err := p.needsTerminal(); err != nil {
		return err
	}
	player := newPlayer(r)
	return p.screen(ctx, look, tui.Config{Source: filteredSource{player, s}, Player: player, Title: filepath.Base(name)})
}
