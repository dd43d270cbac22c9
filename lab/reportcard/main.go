//go:build unix

// Reportcard runs certify on the clients of package clients, on the redis-server on
// PATH, and writes the results as a markdown page. It runs in the folder of the clients.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"locktop/lab/clients"
	"locktop/lab/clienttest"
)

func main() {
	out := flag.String("out", "", "write the page to this file, as markdown (default: stdout)")
	drawn := flag.String("html", "", "also write the card with its drawings to this file")
	only := flag.String("run", "", "run only the clients whose names contain one of these words, such as redsync,redlock")
	tests := flag.String("tests", "", "run only these tests, such as freeze,crash; orders = the orders of certify --exhaustive")
	limit := flag.Int("limit", 300, "run at most so many orders of each play of each client")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, words(*only), words(*tests), *limit, *out, *drawn); err != nil {
		fmt.Fprintln(os.Stderr, "reportcard:", err)
		os.Exit(1)
	}
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// run runs the tests and writes the pages.
func run(ctx context.Context, only, tests []string, limit int, out, drawn string) error {
	found, missing, err := clients.Build(ctx, ".", "bin")
	if err != nil {
		return err
	}
	p := page{all: clienttest.Tests(), missing: missing, machine: machine(), limit: limit}
	var commands []string
	for _, c := range found {
		if chosen(c, only) {
			p.clients = append(p.clients, c)
			commands = append(commands, c.Command)
		}
	}
	all := len(tests) == 0
	ordered := all || slices.Contains(tests, ordersTest)
	if ordered {
		if p.search, err = explore(ctx, commands, limit); err != nil {
			return err
		}
	}
	if tests = slices.DeleteFunc(tests, func(name string) bool { return name == ordersTest }); len(tests) == 0 && !all {
		var section strings.Builder
		p.orders(&section)
		return output(out, section.String())
	}
	p.card, err = clienttest.Run(ctx, clienttest.Options{Commands: commands, Tests: tests, Progress: progress()})
	if err != nil {
		return err
	}
	if drawn != "" {
		if err := write(drawn, p.card.WriteHTML); err != nil {
			return err
		}
	}
	return output(out, p.markdown())
}

// output writes a page, to stdout if the name is empty.
func output(name, text string) error {
	if name == "" {
		_, err := fmt.Print(text)
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// chosen reports whether the name of a client contains one of the words; without words,
// each does.
func chosen(c clients.Client, only []string) bool {
	for _, word := range only {
		if strings.Contains(c.Name, word) {
			return true
		}
	}
	return len(only) == 0
}

// progress returns a function that prints a line for each client.
func progress() func(clienttest.Progress) {
	client := ""
	return func(now clienttest.Progress) {
		if now.Client != client {
			client = now.Client
			fmt.Fprintf(os.Stderr, "%d of %d tests, about %s left: %q\n", now.Done, now.Total, now.Left.Round(time.Second), client)
		}
	}
}

// write writes a file.
func write(name string, to func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := to(f); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}
