// Screenshots makes the images of this directory. It builds locktop, runs it in
// a terminal, presses keys and draws the real screen.
//
//	go run ./screenshots [-o FOLDER] [NAME...]
//
// It needs tmux, and redis-server for the story.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"locktop/tui/svg"
)

func main() {
	folder := flag.String("o", "screenshots", "write the images to this `folder`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := takeAll(ctx, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// takeAll builds the program and takes every shot.
func takeAll(ctx context.Context, folder string) (err error) {
	work, err := os.MkdirTemp("", "locktop-shots-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	program := filepath.Join(work, "locktop")
	if err := run(ctx, "go", "build", "-o", program, "locktop"); err != nil {
		return err
	}
	for _, s := range shots() {
		if names := flag.Args(); len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		if err := s.take(ctx, work, program, folder); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// take runs the program and the steps of the shot, and writes the image, for a dark and a light page.
func (s shot) take(ctx context.Context, work, program, folder string) error {
	for _, theme := range []string{"dark", "light"} {
		text, rows, err := s.run(ctx, filepath.Join(work, s.name+theme), program, theme)
		if err != nil {
			return err
		}
		name, image := filepath.Join(folder, s.name), svg.Draw(s.title(), text, columns, rows)
		if theme == "light" {
			name, image = name+"-light", []byte(onLight.Replace(string(image)))
		}
		if err := os.WriteFile(name+".svg", image, 0o644); err != nil {
			return err
		}
		fmt.Println(name + ".svg")
	}
	return nil
}

// onLight replaces the paper, the ink, the border and the grey of an image.
var onLight = strings.NewReplacer("#171b24", "#ffffff", "#d5d9e2", "#1f2328", "#3a4252", "#d0d7de", "#8b94a6", "#59636e")

func (s shot) title() string {
	if s.script != "" {
		return "a stuck lock, in four frames"
	}
	return strings.TrimSpace("locktop demo " + s.scene)
}

// run returns what the image shows, and its number of rows: the frames of the steps, or else the last screen.
func (s shot) run(ctx context.Context, socket, program, theme string) (text string, rows int, err error) {
	argv := append(strings.Fields("locktop demo "+s.scene), "--theme", theme)
	argv[0] = program
	if s.script != "" {
		argv = []string{"sh", "-c", s.script, "sh", program, theme}
	}
	term, err := openTerminal(ctx, socket, argv)
	if err != nil {
		return "", 0, err
	}
	defer func() {
		_ = term.press(ctx, []string{"C-c"})
		_ = term.waitFor(ctx, `^never$`) // it reports the end of the program, which is what is wanted
		term.close()
	}()
	var frames []string
	for _, do := range s.steps {
		err := errors.Join(term.press(ctx, do.keys), term.waitFor(ctx, do.until))
		if err != nil {
			return "", 0, err
		}
		if do.from == "" {
			continue
		}
		frame, err := term.captureLines(ctx, do.from, do.to)
		if err != nil {
			return "", 0, err
		}
		if do.caption != "" {
			frames = append(frames, "", ansi.Style{}.Bold().Styled(" "+do.caption), "")
		}
		frames = append(frames, frame...)
	}
	if frames != nil {
		return strings.Join(frames, "\n"), len(frames), nil
	}
	text, err = term.capture(ctx)
	return text, rowsOfTerminal, err
}

func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}
