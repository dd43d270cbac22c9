//go:build unix

package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"slices"

	"github.com/charmbracelet/x/ansi"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/lab/clienttest"
	"locktop/tui/widget"
)

// cardError returns the exitError of a card, nil if all is well.
func cardError(card clienttest.Card) error {
	var failed, unusable, unclear []string
	for _, c := range card.Clients {
		name := widget.Plain(c.Client.Name)
		if c.Client.Error != "" {
			unusable = append(unusable, name+": "+widget.Plain(c.Client.Error))
		}
		for _, v := range c.Verdicts {
			switch v.Outcome {
			case clienttest.Fail:
				failed = append(failed, name+" "+v.Test)
			case clienttest.Inconclusive:
				unclear = append(unclear, name+" "+v.Test)
			}
		}
	}
	return judgement("failure", failed, unusable, unclear)
}

// judgement returns the exitError for what failed, called a noun, for clients that cannot be tested, and for what is not
// clear; nil if there is nothing.
func judgement(noun string, failed, unusable, unclear []string) error {
	switch {
	case len(failed) > 0:
		return exitError{exitFailed, fmt.Sprintf("%s: %s", humanize.Plural(len(failed), noun), strings.Join(failed, ", "))}
	case len(unusable) > 0:
		return exitError{exitFailure, strings.Join(unusable, "; ")}
	case len(unclear) > 0:
		return exitError{exitInconclusive, "inconclusive: " + strings.Join(unclear, ", ")}
	}
	return nil
}

// cells are the words of the outcomes in the table.
var cells = map[clienttest.Outcome]string{
	clienttest.Pass: "pass", clienttest.Fail: "FAIL", clienttest.Observed: "observed", clienttest.Unsupported: "-", clienttest.Inconclusive: "unclear",
}

// cardText returns a card as a table and the evidence of everything that is not a pass.
func cardText(card clienttest.Card, width int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s, %s\n\n", card.Server, card.Date.Local().Format("2006-01-02 15:04"), "locktop "+card.Locktop)
	names := columnNames(card, width)
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "TEST\t%s\n", strings.Join(names, "\t"))
	for i, test := range card.Tests {
		row := []string{test.Name}
		for _, c := range card.Clients {
			row = append(row, cells[c.Verdicts[i].Outcome])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // to memory
	for i, c := range card.Clients {
		out.WriteString(evidenceText(names[i], c, width))
	}
	return out.String()
}

// columnNames returns the names of the clients, or their numbers if these do not fit.
func columnNames(card clienttest.Card, width int) []string {
	sum := len("failover-behind")
	var names, numbers []string
	for i, c := range card.Clients {
		name := widget.Plain(c.Client.Name)
		names, numbers = append(names, name), append(numbers, strconv.Itoa(i+1))
		sum += 2 + max(len("observed"), ansi.StringWidth(name))
	}
	if sum > width || len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names) {
		return numbers
	}
	return names
}

// evidenceText returns what was observed of a client.
func evidenceText(column string, c clienttest.Result, width int) string {
	var out strings.Builder
	name := widget.Plain(c.Client.Name)
	if column != name {
		name = column + "  " + name
	}
	h := c.Client.Hello
	fmt.Fprintf(&out, "\n%s\n", name)
	paragraph(&out, width, fmt.Sprintf("kinds %s; renews %s, fences %s, tells %s, extends %s",
		widget.Plain(strings.Join(h.Kinds, " ")), clienttest.YesNo(h.Renews), clienttest.YesNo(h.Fences), clienttest.YesNo(h.Tells), clienttest.YesNo(c.Client.Extends)))
	for _, o := range []clienttest.Outcome{clienttest.Fail, clienttest.Observed, clienttest.Inconclusive} {
		for _, v := range c.Verdicts {
			if v.Outcome == o {
				paragraph(&out, width, fmt.Sprintf("%s %s: %s", cells[o], v.Test, widget.Plain(v.Evidence)))
			}
		}
	}
	if without := unsupported(c); without != "" {
		paragraph(&out, width, "not supported: "+without)
	}
	return out.String()
}

// unsupported returns the tests that a client does not support, by reason.
func unsupported(c clienttest.Result) string {
	var reasons []string
	tests := make(map[string][]string)
	for _, v := range c.Verdicts {
		if v.Outcome != clienttest.Unsupported {
			continue
		}
		if tests[v.Evidence] == nil {
			reasons = append(reasons, v.Evidence)
		}
		tests[v.Evidence] = append(tests[v.Evidence], v.Test)
	}
	return strings.Join(render.Each(reasons, func(why string) string {
		return strings.Join(tests[why], ", ") + " (" + widget.Plain(why) + ")"
	}), "; ")
}

// paragraph writes a text that is wrapped and indented.
func paragraph(out *strings.Builder, width int, text string) {
	for i, line := range widget.Blocks().Wrap(text, max(width-4, 20), len(text)) {
		indent := "  "
		if i > 0 {
			indent = "    "
		}
		fmt.Fprintln(out, indent+line)
	}
}
