// Screenshots makes the images of this directory. It builds locktop, runs it in
// a terminal, presses keys and draws the real screen.
//
//	go run ./screenshots [-o FOLDER] [NAME...]
//
// It needs tmux, rsvg-convert for PNG, and ffmpeg and gifsicle for the animation.
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

// take runs the program and the steps of the shot, and writes the image.
func (s shot) take(ctx context.Context, work, program, folder string) error {
	title := strings.TrimSpace("locktop demo " + s.scene)
	argv := append(strings.Fields(title), "--theme", "dark")
	argv[0] = program
	term, err := openTerminal(ctx, filepath.Join(work, s.name), argv)
	if err != nil {
		return err
	}
	defer term.close()
	for _, do := range s.steps {
		if err := term.press(ctx, do.keys); err != nil {
			return err
		}
		if err := term.waitFor(ctx, do.until); err != nil {
			return err
		}
	}
	if s.frames > 0 {
		return s.animate(ctx, term, title, work, folder)
	}
	text, err := term.capture(ctx)
	if err != nil {
		return err
	}
	return write(ctx, filepath.Join(folder, s.name), svg.Draw(title, text, columns, rows))
}

// write writes name.svg, and name.png if rsvg-convert is installed.
func write(ctx context.Context, name string, svg []byte) error {
	if err := os.WriteFile(name+".svg", svg, 0o644); err != nil {
		return err
	}
	fmt.Println(name + ".svg")
	if _, err := exec.LookPath("rsvg-convert"); err != nil {
		return nil
	}
	if err := run(ctx, "rsvg-convert", "--zoom", "2", "--output", name+".png", name+".svg"); err != nil {
		return err
	}
	fmt.Println(name + ".png")
	return nil
}
