package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"locktop/lab/contest"
)

const preamble = `# Benchmarks

How the lock package compares with other lock libraries for Go. This page is written by ` + "`make bench`" + `.

All contenders run side by side: in one process, on one redis-server child without persistence, over loopback,
taking turns within every round. Tables hold the median of the rounds; a ratio is the quotient within each
round, and of those the median. **Only ratios mean anything**: client and server share the machine's cores, with
all other load.

`

const contenders = `
* **locktop** – ` + "`lock.Mutex`" + ` as it comes: it listens for the release, and it renews
* **raw** – the minimum without pipelining: SET NX PX, then compare-and-delete by EVALSHA, over go-redis' pool
* **redsync** – on one server, over go-redis' pool, its own pauses between tries, no limit of tries
* **redislock** – bsm/redislock over go-redis' pool, a try every 50 ms
* **rueidislock** – one key per lock instead of three, NOLOOP tracking, at most 1 s per try
* **redisson form** – the commands of Redisson's RReadWriteLock, which needs a JVM, over go-redis
`

// page returns the results as markdown.
func page(p environment, results []contest.Result) string {
	var b strings.Builder
	b.WriteString(preamble)
	fmt.Fprintf(&b, "Measured on: %s; redis-server %s. %s.\n", p.machine, p.redis, strings.Join(p.modules, ", "))
	b.WriteString(contenders)
	b.WriteString("\n## Goals\n\n| measurement | figure | value | goal | reached |\n|---|---|---:|---:|---|\n")
	for _, r := range results {
		for _, v := range r.Verdicts {
			for _, g := range v.Figures {
				fmt.Fprintf(&b, "| %s | %s |\n", v.Name, strings.Join(g.Row(), " | "))
			}
		}
	}
	for _, r := range results {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", r.Title, r.About)
		for _, t := range r.Tables {
			writeTable(&b, t)
		}
	}
	b.WriteString(again)
	return b.String()
}

const again = `
## Again

` + "```sh" + `
make bench-quick                        # under a minute: the goals only
make bench                              # everything, and this page
cd lab && go run ./bench -run B10     # one of them, here locks beside observers; needs tmux
cd lab && go test -run '^$' -bench .  # the same as Go benchmarks
` + "```" + `
`

func writeTable(b *strings.Builder, t contest.Table) {
	fmt.Fprintf(b, "\n**%s**\n\n| | %s |\n|---|%s\n", t.Title, strings.Join(t.Columns, " | "), strings.Repeat("---:|", len(t.Columns)))
	for _, row := range t.Rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// environment describes the machine and the programs of a measurement.
type environment struct {
	machine string
	redis   string
	modules []string // name and version
}

func readEnvironment(ctx context.Context, t *contest.Testbed) (environment, error) {
	version, err := t.Version(ctx)
	return environment{
		machine: fmt.Sprintf("%s, %d logical CPUs, %s/%s, %s", cpu(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()),
		redis:   version,
		modules: modules(),
	}, err
}

// cpu returns the name of the processor, if the system reports it.
func cpu() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "a processor of unknown name"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "a processor of unknown name"
}

// modules returns the compared libraries with the versions in this binary.
func modules() []string {
	measured := []string{
		"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4",
		"github.com/bsm/redislock", "github.com/redis/rueidis",
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var found []string
	for _, m := range info.Deps {
		if slices.Contains(measured, m.Path) {
			found = append(found, m.Path+" "+m.Version)
		}
	}
	return found
}
