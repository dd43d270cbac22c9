//go:build unix

package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"locktop/lab/clients"
	"locktop/lab/clienttest"
)

const preamble = `# Report card

What clients of some lock libraries did in the tests of ` + "`certify`" + `, in one run. ` + "`make report-card`" + ` runs the tests
and writes this page; no cell is written by hand. [What each test does](certify.md), and what a pass does not mean.

## How to read this page

A **fail** is an observation: in this run, with these versions and settings, the client did what the evidence says. It is a
link to the evidence. Whether it matters depends on the use: a holder that never works longer than its TTL does not meet most
of these faults. A **pass** is the absence of that observation in one run, not a proof. **fact** is an observation that is no
failure, because no lock of its kind can promise otherwise. A dash: the client does not offer what the test needs. **?**: the
test did not come to its end. There is no sum and no ranking, because the tests have different weight for different uses.

A column is a small program around a library (` + "`lab/clients`" + `) with the default options of the library, except those that the
program names. The TTL is 300 ms to 6 s, depending on the test. What a library documents as its limit is not a defect of the
library. The clients run one after another, so the figures of *many waiters* also depend on what else the machine does, and
are no comparison.
`

// page is the report of a run.
type page struct {
	card    clienttest.Card
	clients []clients.Client  // in the order of the card
	all     []clienttest.Test // also those that were not run
	missing []string          // clients that could not run, with the reasons
	machine string
	search  clienttest.Search // of the same clients, empty if it was not run
	limit   int               // of its orders
}

func machine() string {
	return fmt.Sprintf("%d logical CPUs, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// markdown returns the page.
func (p page) markdown() string {
	var b strings.Builder
	b.WriteString(preamble)
	fmt.Fprintf(&b, "\nRun on %s: %s, seed %d, %s.\n", p.card.Date.Format("2006-01-02"), p.card.Server, p.card.Seed, p.machine)
	for _, g := range []struct {
		group clients.Group
		title string
	}{
		{clients.Library, "Libraries"},
		{clients.Recipe, "Recipes, and the commands of other libraries"},
		{clients.Own, "The locks of locktop"},
	} {
		p.table(&b, g.group, g.title)
	}
	p.orders(&b)
	p.evidence(&b, "Evidence of the failures", clienttest.Fail)
	p.evidence(&b, "Facts", clienttest.Observed)
	p.evidence(&b, "Without a result", clienttest.Inconclusive)
	p.untested(&b)
	b.WriteString(again)
	return b.String()
}

// columns returns the numbers of the clients of a group.
func (p page) columns(g clients.Group) []int {
	var all []int
	for i, c := range p.clients {
		if c.Group == g {
			all = append(all, i)
		}
	}
	return all
}

// short returns the name of a client without its version.
func (p page) short(i int) string { return strings.TrimSpace(p.clients[i].Name) }

func (p page) table(b *strings.Builder, g clients.Group, title string) {
	columns := p.columns(g)
	if len(columns) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n|", title)
	for _, i := range columns {
		fmt.Fprintf(b, " | %s", p.short(i))
	}
	fmt.Fprintf(b, " |\n|---|%s\n", strings.Repeat(":---:|", len(columns)))
	for _, t := range p.card.Tests {
		fmt.Fprintf(b, "| %s", t.Title)
		for _, i := range columns {
			fmt.Fprintf(b, " | %s", p.cell(i, t.Name))
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n")
	for _, i := range columns {
		c := p.card.Clients[i].Client
		fmt.Fprintf(b, "- **%s**: %s, `%s`. Its hello: kinds %s; renews %s, fences %s, tells %s.\n", p.short(i), text(c.Name), c.Command,
			text(strings.Join(c.Hello.Kinds, " ")), clienttest.YesNo(c.Hello.Renews), clienttest.YesNo(c.Hello.Fences), clienttest.YesNo(c.Hello.Tells))
	}
}

func (p page) cell(client int, test string) string {
	v, _ := p.card.Clients[client].Verdict(test)
	switch v.Outcome {
	case clienttest.Pass:
		return "pass"
	case clienttest.Fail:
		return fmt.Sprintf("[**fail**](#%s)", p.anchor(client, test))
	case clienttest.Observed:
		return fmt.Sprintf("[fact](#%s)", p.anchor(client, test))
	case clienttest.Unsupported:
		return "–"
	}
	return fmt.Sprintf("[?](#%s)", p.anchor(client, test))
}

func (p page) anchor(client int, test string) string {
	return strings.ReplaceAll(strings.ToLower(p.short(client)), " ", "-") + "-" + test
}

// evidence writes what was observed for each cell with an outcome.
func (p page) evidence(b *strings.Builder, title string, o clienttest.Outcome) {
	var lines strings.Builder
	for i, r := range p.card.Clients {
		for _, t := range p.card.Tests {
			v, found := r.Verdict(t.Name)
			if !found || v.Outcome != o {
				continue
			}
			fmt.Fprintf(&lines, "- <a id=\"%s\"></a>**%s, %s**: %s\n", p.anchor(i, t.Name), text(r.Client.Name), t.Title, text(v.Evidence))
			if o != clienttest.Fail {
				continue
			}
			if how := confirmed[p.short(i)][t.Name]; how != "" {
				fmt.Fprintf(&lines, "  Confirmed: %s\n", how)
			} else {
				fmt.Fprintf(&lines, "  Not confirmed without locktop.\n")
			}
		}
	}
	if lines.Len() > 0 {
		fmt.Fprintf(b, "\n## %s\n\n%s", title, &lines)
	}
}

// untested writes what the page does not show, with the reasons.
func (p page) untested(b *strings.Builder) {
	b.WriteString("\n## What was not tested\n\n")
	reasons := make(map[string][]string)
	for i, r := range p.card.Clients {
		for _, v := range r.Verdicts {
			if v.Outcome == clienttest.Unsupported {
				line := "`" + v.Test + "`: " + text(v.Evidence)
				reasons[line] = append(reasons[line], p.short(i))
			}
		}
	}
	var lines []string
	for line, names := range reasons {
		lines = append(lines, fmt.Sprintf("- %s: %s.\n", line, strings.Join(names, ", ")))
	}
	slices.Sort(lines)
	for _, line := range lines {
		b.WriteString(line)
	}
	for _, t := range p.all {
		if !slices.ContainsFunc(p.card.Tests, func(run clienttest.Test) bool { return run.Name == t.Name }) {
			fmt.Fprintf(b, "- `%s`: not in this run.\n", t.Name)
		}
	}
	for _, line := range p.missing {
		fmt.Fprintf(b, "- A client could not run: %s.\n", text(line))
	}
	b.WriteString(`- Redisson and python-redis-lock themselves: their columns are programs that send the same commands.
- Other versions, options, connection pools and servers than those above; TLS; clusters.
- Rare orders of events: each test shows one, and the orders of the commands are those of two clients.
`)
}

// text returns a text of a client as markdown that shows it as it is.
func text(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.NewReplacer("|", `\|`, "[", `\[`, "<", "&lt;", "*", `\*`, "_", `\_`, "`", "'").Replace(s))
}

const again = `
## Again

` + "```sh" + `
npm install --prefix lab/compat/node              # the Node clients; the Python ones need Debian's python3-redis
make report-card                                    # this page, and card.html with a drawing of each failure
cd lab/clients && go run ../reportcard -run redsync -tests freeze,late-unlock
cd lab/clients && go run ../reportcard -tests orders   # only the orders of the commands
` + "```" + `
`
