//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"locktop/lab/clienttest"
)

// ordersTest is the name, beside those of tests, of the orders of certify --exhaustive.
const ordersTest = "orders"

// explore runs at most limit orders of each play of each client.
func explore(ctx context.Context, commands []string, limit int) (clienttest.Search, error) {
	client := ""
	return clienttest.Exhaust(ctx, clienttest.ExhaustOptions{Commands: commands, Limit: limit, Progress: func(now clienttest.Exploring) {
		if now.Client != client {
			client = now.Client
			fmt.Fprintf(os.Stderr, "orders: %q\n", client)
		}
	}})
}

// orders writes what was found in the orders of the commands of each client.
func (p page) orders(b *strings.Builder) {
	s := p.search
	if len(s.Clients) == 0 {
		return
	}
	fmt.Fprintf(b, `
## All orders of the commands

`+"`certify --exhaustive`"+` runs the commands of two clients in [every order](certify.md#all-orders-of-the-commands), with at most %d
faults, those with fewer faults first, until a limit of %d orders of each play, or a counterexample. *Left out* were known and
did not run. *Not repeated*: the client sent other commands when the order began again. *Too slow*: a step of the machine took
so long that a lease may have ended, three times. *Doubtful*: something was found once in three runs. Run on %s: %s, %s.

| client | orders with no, one and two faults | left out | not repeated | too slow | doubtful | result |
|---|---|---:|---:|---:|---:|---|
`, s.Faults, p.limit, s.Date.Format("2006-01-02"), s.Server, p.machine)
	var found strings.Builder
	for i, c := range s.Clients {
		var of [3]int
		var sum clienttest.Played
		var ended []string
		for _, play := range c.Plays {
			for faults, n := range play.Orders {
				of[min(faults, len(of)-1)] += n
			}
			sum.Left, sum.Other, sum.Slow, sum.Doubtful = sum.Left+play.Left, sum.Other+play.Other, sum.Slow+play.Slow, sum.Doubtful+play.Doubtful
			if play.Error != "" {
				ended = append(ended, play.Play+" ended by: "+text(play.Error))
			}
		}
		cell := "none found"
		if c.Client.Error != "" {
			cell = "it cannot be tested: " + text(c.Client.Error)
		}
		if best := c.Shortest(); best != nil {
			id := p.anchor(i, ordersTest)
			cell = fmt.Sprintf("[**fail**](#%s)", id)
			fmt.Fprintf(&found, "- <a id=\"%s\"></a>**%s**, `%s`, in %d of %d runs: %s\n", id, text(c.Client.Name), best.Order, best.Seen, best.Runs, text(best.Finding))
		}
		fmt.Fprintf(b, "| %s | %d + %d + %d | %d | %d | %d | %d | %s |\n", p.short(i), of[0], of[1], of[2], sum.Left, sum.Other, sum.Slow, sum.Doubtful,
			strings.Join(slices.Insert(ended, 0, cell), "; "))
	}
	if found.Len() > 0 {
		fmt.Fprintf(b, "\nThe shortest order of each client that failed:\n\n%s", &found)
	}
}
