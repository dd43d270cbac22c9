package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"locktop/tui/svg"
)

// frameEvery is the time between two frames of an animation.
const frameEvery = 400 * time.Millisecond

// animate records an animation, and its last frame as an image. If a program that it needs is missing, it prints
// that and writes nothing.
func (s shot) animate(ctx context.Context, term *terminal, title, work, folder string) error {
	for _, tool := range []string{"rsvg-convert", "ffmpeg", "gifsicle"} {
		if _, err := exec.LookPath(tool); err != nil {
			fmt.Printf("%s: left out, there is no %s\n", s.name, tool)
			return nil
		}
	}
	frames := filepath.Join(work, s.name+"-frames")
	if err := os.Mkdir(frames, 0o755); err != nil {
		return err
	}
	for i := range s.frames {
		text, err := term.capture(ctx)
		if err != nil {
			return err
		}
		if i == s.frames-1 {
			if err := write(ctx, filepath.Join(folder, s.name), svg.Draw(title, text, columns, rows)); err != nil {
				return err
			}
		}
		name := filepath.Join(frames, fmt.Sprintf("%03d.svg", i))
		if err := os.WriteFile(name, svg.Draw(title, text, columns, rows), 0o644); err != nil {
			return err
		}
		if err := sleep(ctx, frameEvery); err != nil {
			return err
		}
	}
	return s.encode(ctx, frames, filepath.Join(folder, s.name+".gif"))
}

// encode makes an animation of the frames.
func (s shot) encode(ctx context.Context, frames, to string) error {
	for i := range s.frames {
		name := filepath.Join(frames, fmt.Sprintf("%03d", i))
		if err := run(ctx, "rsvg-convert", "--output", name+".png", name+".svg"); err != nil {
			return err
		}
	}
	raw := filepath.Join(frames, "raw.gif")
	palette := "split[a][b];[a]palettegen=max_colors=48:stats_mode=diff[p];[b][p]paletteuse=dither=none:diff_mode=rectangle"
	rate := fmt.Sprintf("%g", float64(time.Second)/float64(frameEvery))
	err := errors.Join(
		run(ctx, "ffmpeg", "-v", "error", "-y", "-framerate", rate, "-i", filepath.Join(frames, "%03d.png"), "-vf", palette, raw),
		run(ctx, "gifsicle", "-O3", "--lossy=40", "-o", to, raw),
	)
	if err == nil {
		fmt.Println(to)
	}
	return err
}

func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}
