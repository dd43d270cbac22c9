//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"locktop/internal/humanize"
	"locktop/internal/shell"
	"locktop/lab/clienttest"
	"locktop/tui/widget"
)

// exhaust runs the orders of the commands and prints what was found.
func (c *certification) exhaust(ctx context.Context, run clienttest.Options) error {
	search, err := clienttest.Exhaust(ctx, clienttest.ExhaustOptions{
		Commands: run.Commands, Plays: c.tests, Order: c.order, Limit: c.limit, Server: c.server,
		Progress: func(now clienttest.Exploring) { c.progress.show(now.Client+now.Play, exploringText(now)) },
	})
	c.progress.clear()
	if err != nil && ctx.Err() == nil {
		return err
	}
	search.Locktop = revision()
	err = c.printed(search, searchText(search, c.width()))
	return worst(searchError(search), err, ctx.Err())
}

func exploringText(now clienttest.Exploring) string {
	text := fmt.Sprintf("%s: %s, %s", now.Client, now.Play, humanize.Plural(now.Orders, "order"))
	if now.Found != "" {
		return text + ", found " + now.Found
	}
	return text + fmt.Sprintf(", now with %s, %d more known", humanize.Plural(now.Faults, "fault"), now.Known)
}

// searchError returns the exitError of a search, nil if all is well.
func searchError(s clienttest.Search) error {
	var found, unusable, unclear []string
	for _, c := range s.Clients {
		name := widget.Plain(c.Client.Name)
		if c.Client.Error != "" {
			unusable = append(unusable, name+": "+widget.Plain(c.Client.Error))
		}
		for _, play := range c.Plays {
			switch {
			case play.Found != nil:
				found = append(found, name+" "+play.Found.Order)
			case play.Error != "" || play.Doubtful > 0:
				unclear = append(unclear, name+" "+play.Play)
			}
		}
	}
	return judgement("counterexample", found, unusable, unclear)
}

// searchText returns what was found: a table of the plays of each client, and its shortest
// counterexample as a table of commands.
func searchText(s clienttest.Search, width int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s, locktop %s; TTL %s, at most %s in an order\n", s.Server, s.Date.Local().Format("2006-01-02 15:04"), s.Locktop,
		humanize.Setting(time.Duration(s.TTL)), humanize.Plural(s.Faults, "fault"))
	for _, c := range s.Clients {
		fmt.Fprintf(&out, "\n%s\n", widget.Plain(c.Client.Name))
		if c.Client.Error != "" {
			paragraph(&out, width, "It cannot be tested: "+widget.Plain(c.Client.Error))
		}
		t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  PLAY\tORDERS\tIN\tRESULT")
		for _, play := range c.Plays {
			if play.Unsupported == "" {
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", play.Play, ordersText(play.Orders), humanize.Precise(time.Duration(play.Took)), playedText(play))
			}
		}
		_ = t.Flush() // to memory
		if best := c.Shortest(); best != nil {
			out.WriteString(counterexampleText(c, *best, width))
		}
	}
	out.WriteString("\n")
	paragraph(&out, width, "These are the orders of the commands that these clients sent in these plays, and of no other ones. That nothing was found is no proof.")
	return out.String()
}

// ordersText returns the orders with no, one and two faults.
func ordersText(orders []int) string {
	var words []string
	for _, n := range orders {
		words = append(words, fmt.Sprint(n))
	}
	return cmp.Or(strings.Join(words, "+"), "0")
}

// playedText returns the result of a play, and what it does not say.
func playedText(p clienttest.Played) string {
	text := "none found"
	if p.Found != nil {
		text = fmt.Sprintf("FOUND %s (%d of %s)", p.Found.Order, p.Found.Seen, humanize.Plural(p.Found.Runs, "run"))
	}
	for _, n := range []struct {
		count int
		what  string
	}{
		{p.Left, "left out"}, {p.Same, "with the same effect"}, {p.Together, "commands not ordered"}, {p.Own, "commands of its own"},
		{p.Other, "not repeatable"}, {p.Slow, "too slow"}, {p.Doubtful, "doubtful"},
	} {
		if n.count > 0 {
			text += fmt.Sprintf("; %d %s", n.count, n.what)
		}
	}
	if p.Error != "" {
		text += "; ended by: " + widget.Plain(p.Error)
	}
	return text
}

// counterexampleText returns a counterexample as a table.
func counterexampleText(c clienttest.SearchResult, found clienttest.Counterexample, width int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n")
	paragraph(&out, width, widget.Plain(found.Finding))
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  CLIENT\tCOMMAND\tREPLY\tTHE CLIENT")
	for _, s := range found.Steps {
		command := widget.Plain(s.Command)
		if s.Fault != "" {
			command = strings.TrimSpace(command + " [" + s.Fault + "]")
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", s.Client, command, widget.Plain(s.Reply), widget.Plain(s.Result))
	}
	_ = t.Flush() // to memory
	if exec, ok := shell.Line("go", "run", "./certify", "--exec", c.Client.Command, "--order", found.Order); ok {
		fmt.Fprintf(&out, "  To repeat it: %s\n", widget.Plain(exec))
	}
	return out.String()
}
