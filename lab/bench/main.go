// Bench runs the benchmarks of package contest and prints how locktop compares
// with its peers: one line per goal, which ends with ok or short. With -out it
// also writes a page with all figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"locktop/lab/contest"
)

func main() {
	out := flag.String("out", "", "write the figures to this file, as markdown")
	quick := flag.Bool("quick", false, "shorter windows, fewer rounds: under a minute")
	only := flag.String("run", "", "run these only, such as B1,B3")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	size := contest.Full
	if *quick {
		size = contest.Quick
	}
	if err := run(ctx, size, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures and prints, and writes the page unless out is "".
func run(ctx context.Context, size contest.Size, only, out string) error {
	testbed, err := contest.NewTestbed(ctx)
	if err != nil {
		return err
	}
	defer testbed.Close()
	var results []contest.Result
	for _, b := range contest.Benchmarks() {
		if only != "" && !strings.Contains(","+only+",", ","+b.Name+",") {
			continue
		}
		result, err := b.Run(ctx, testbed, size)
		if err != nil {
			return err
		}
		for _, v := range result.Verdicts {
			fmt.Println(v)
		}
		results = append(results, result)
	}
	if out == "" {
		return nil
	}
	environment, err := readEnvironment(ctx, testbed)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(page(environment, results)), 0o644)
}
