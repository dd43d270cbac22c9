// Soak lets clients fight over locks of all sound kinds for a while, on real
// redis-servers of its own that are killed, stopped and paused meanwhile, as the
// clients are crashed, cut off, slowed down and frozen. An oracle watches every
// hold, and every history is proved to be that of a lock.
//
// It ends with a line of figures, and with exit code 1 if anything happened that
// a lock must not let happen: an overlap, a lease that was lost without a fault,
// something left behind. The same -seed makes the same choices and the same
// faults; how they meet is up to the machine.
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
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	duration := flag.Duration("duration", 10*time.Minute, "how long to play")
	seed := flag.Uint64("seed", uint64(rand.Uint32()), "where all choices come from")
	flag.Parse()
	logging.Disable() // go-redis would tell of every connection that a fault cuts
	sum, err := soak(ctx, allKinds(), *seed, *duration, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "soak: %v\n", err)
	}
	if err != nil || !sum.sound() {
		os.Exit(1)
	}
}

// roundLength is how long a round takes at most: as long as its histories can be
// proved in a few seconds.
const roundLength = time.Minute

// soak runs rounds until duration is over, or ctx ends, and returns their results. The
// summary line goes to out, progress messages go to progress.
func soak(ctx context.Context, all kindSet, seed uint64, duration time.Duration, out, progress io.Writer) (*tally, error) {
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
