// Soak runs a long load on all sound kinds of locks, each on its own redis-servers: a
// scenario of package loadgen with random faults. They kill, stop and pause the servers, and
// crash, cut off, slow down and freeze the clients. An oracle checks every hold, and a proof
// checks every history.
//
// At the end, it prints a summary line. The exit code is 1 after an error or after
// anything that a lock must prevent: an overlap, a lease lost without a fault, or
// leftovers on a server. The same -seed gives the same choices and the same faults, but
// their timing depends on the machine.
//
//	go run ./soak -duration 10m
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"locktop/loadgen"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	duration := flag.Duration("duration", 10*time.Minute, "duration of the run")
	seed := flag.Uint64("seed", uint64(rand.Uint32()), "seed of all choices")
	flag.Parse()
	logging.Disable() // go-redis logs every connection that a fault breaks
	sum, err := soak(ctx, allKinds(), *seed, *duration, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "soak: %v\n", err)
	}
	if err != nil || !sum.sound() {
		os.Exit(1)
	}
}

// roundLength is the maximum length of a round. Its histories can be proved in a few
// seconds.
const roundLength = time.Minute

// soak runs rounds until duration is over or ctx ends, and returns their results. It
// writes the summary line to out and progress messages to progress.
func soak(ctx context.Context, all []loadgen.Scenario, seed uint64, duration time.Duration, out, progress io.Writer) (*tally, error) {
	rounds := max(1, int(duration/roundLength))
	length := duration / time.Duration(rounds)
	fmt.Fprintf(progress, "soak: %d rounds of %s, seed %d\n", rounds, length, seed)
	sum := newTally(progress)
	for i := range rounds {
		one := seed + uint64(i)
		if err := runRound(ctx, all, one, length, sum); err != nil {
			return nil, fmt.Errorf("round %d (-seed %d -duration %s): %w", i+1, one, length, err)
		}
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(progress, "soak: round %d (-seed %d -duration %s), so far: %s\n", i+1, one, length, sum)
	}
	_, err := fmt.Fprintf(out, "soak: %s, seed %d: %s\n", duration, seed, sum)
	return sum, err
}
