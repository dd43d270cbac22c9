// Screenshots makes the images of this directory. It builds locktop, runs it in
// a terminal, presses keys and draws the real screen.
//
//	go run ./screenshots [-o FOLDER]
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
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "locktop").CombinedOutput(); err != nil {
		return fmt.Errorf("build locktop: %w\n%s", err, out)
	}
	for _, s := range shots() {
		if err := s.take(ctx, work, program, folder); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// take runs the program and the steps of the shot, and writes the image.
func (s shot) take(ctx context.Context, work, program, folder string) error {
	term, err := openTerminal(ctx, filepath.Join(work, s.name), append([]string{program}, s.args...))
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
		return s.animate(ctx, term, work, folder)
	}
	text, err := term.capture(ctx)
	if err != nil {
		return err
	}
	return write(ctx, filepath.Join(folder, s.name), svg.Draw(s.title, text, columns, rows))
}

// write writes name.svg, and name.png if rsvg-convert is installed.
func write(ctx context.Context, name string, svg []byte) error {
	if err := os.WriteFile(name+".svg", svg, 0o644); err != nil {
		return err
	}
	fmt.Println(name + ".svg")
	converter, err := exec.LookPath("rsvg-convert")
	if err != nil {
		return nil
	}
	out, err := exec.CommandContext(ctx, converter, "--zoom", "2", "--output", name+".png", name+".svg").CombinedOutput()
	if err != nil {
		return fmt.Errorf("convert %s.svg: %w\n%s", name, err, out)
	}
	fmt.Println(name + ".png")
	return nil
}
