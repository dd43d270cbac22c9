package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/report"
	"locktop/loadgen/scenarios"
)

// loadOptions holds the settings of load that are not part of the scenario.
type loadOptions struct {
	thresholds []string
	exec       string
	versus     string
	baselines  []string
	baseline   *report.Baseline // nil = none
	asClient   string
	set        *pflag.FlagSet // tells which scenario flags are set

	redlock []string
	demo    bool
	force   bool

	json    bool
	files   outputFiles
	suite   bool
	repeat  int
	control string
	agents  int
	joining time.Duration
}

func kindNames() []string {
	return render.Each(loadgen.Kinds(), func(k loadgen.Kind) string { return string(k) })
}

// defaultDuration is the duration of a load without --duration.
const defaultDuration = 30 * time.Second

func (o *loadOptions) flags() []*pflag.FlagSet {
	load := flagSection("Load")
	words := strings.NewReplacer("<", "`", ">", "`", "{kinds}", strings.Join(kindNames(), ", "))
	for _, x := range loadgen.Settings() {
		if x.Flag != "" {
			load.String(x.Flag, "", words.Replace(x.Usage))
		}
	}
	load.StringArrayVar(&o.thresholds, "threshold", nil, "`condition` checked at the end, like 'wait.p99 < 250ms' or 'wait.p99 < 110% of baseline'; may be repeated")
	load.StringArrayVar(&o.baselines, "baseline", nil, "`file` with an earlier report, of --json, to compare with; may be repeated: from three on, the noise is known")
	load.StringVar(&o.exec, "exec", "", "`command` of a client process, for the shell: locktop starts one per client, and they lock instead of its own clients")
	load.StringVar(&o.versus, "versus", "", "`locks` to run at the same time and compare with: kinds, or {exec: COMMAND}, with commas between them")
	load.BoolVar(&o.suite, "suite", false, "run the scenarios of the suite one after another, or only the one with the name, and print one table")
	load.IntVar(&o.repeat, "repeat", 1, "`number` of runs of each row of the suite, with different seeds; the worst one counts")
	load.StringVar(&o.asClient, "as-client", "", "be a client process for --exec, with locks of this `kind`")
	load.StringSliceVar(&o.redlock, "redlock", nil, "`addresses` of independent servers, for the kinds redlock and classic/quorum-semaphore, and for --exec")
	load.BoolVar(&o.demo, "demo", false, "run on servers that locktop starts and stops")
	load.BoolVar(&o.force, "yes-load-this-server", false, "also load a server on another machine, or one that has keys under the prefix")
	o.set = load

	several := flagSection("Several machines")
	o.addAgentFlags(several)

	out := flagSection("Output")
	out.BoolVar(&o.json, "json", false, "print the report as one JSON document; errors are JSON, too")
	o.files.addTo(out)
	return []*pflag.FlagSet{load, several, out}
}

func (p *program) loadCommand() *cobra.Command {
	var c connect.Flags
	var o loadOptions
	return withFlags(&cobra.Command{
		Use:   "load [SCENARIO|FILE] [flags]",
		Short: "Run competing clients and check mutual exclusion",
		Long: `Runs simulated clients that compete for locks, and reports the waits, the cost, and
every violation of mutual exclusion.

The load is a ready-made scenario (see locktop scenarios), a scenario file, or the
defaults; flags change it. Progress goes to stderr, the report to stdout. An
interrupt stops the clients, releases all locks and prints the report. A second
interrupt ends locktop immediately.

--exec tests any lock library: locktop starts one process per client, which reads
requests from stdin and writes replies to stdout, as one JSON object per line.
docs/load.md has the protocol and a client in 30 lines.

Every key begins with the prefix, and locktop deletes all of them at the end. A
server on another machine, and a server with other keys under the prefix, need
--yes-load-this-server.

Exit codes: 98 a lock broke a promise (takes precedence over all others, also after
an interrupt); 1 no client acquired a lock; 99 a threshold was missed, or the run is
inconclusive: a server was unreachable, or a scene did not show its claim;
130 interrupted.`,
		Example: `  locktop load --demo
  locktop load hot-key --duration 20s
  locktop load redlock-minority --demo
  locktop load --json > before.json
  locktop load --baseline before.json --threshold 'wait.p99 < 110% of baseline'
  locktop load --kind fair --rate 500/s --threshold 'wait.p99 < 250ms'
  locktop load freeze --exec 'python3 my_client.py' --versus mutex --clients 10
  locktop load --suite --exec 'python3 my_client.py' --demo
  locktop load hot-key --control redis://ctl:6379 --agents 4 --clients 2000
  locktop scenarios freeze > freeze.yaml; locktop load freeze.yaml --html report.html`,
		Args: oneOrNone,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.load(cmd.Context(), &c, &o, args)
		},
		ValidArgsFunction: cobra.FixedCompletions(scenarios.Names(), cobra.ShellCompDirectiveDefault),
	}, append(o.flags(), c.FlagSet())...)
}

func (p *program) load(ctx context.Context, c *connect.Flags, o *loadOptions, args []string) error {
	if err := o.checkSuite(); err != nil {
		return err
	}
	if o.suite {
		return p.runSuite(ctx, c, o, args)
	}
	s, err := o.scenario(args)
	if err != nil {
		return err
	}
	if o.asClient != "" {
		s.Lock.Kind = loadgen.Kind(o.asClient)
		return loadgen.ServeClient(ctx, s.Lock, p.in, p.out)
	}
	if err := o.checkAgents(c); err != nil {
		return err
	}
	on, err := p.openLoadServers(ctx, c, o, s)
	if err != nil {
		return err
	}
	defer on.close()
	sides := s.Sides()
	for _, side := range sides {
		if err := on.checkPrefix(ctx, side, o.force); err != nil {
			return err
		}
	}
	if o.control != "" {
		return p.runAgents(ctx, c, o, on, s)
	}
	return p.runVariants(ctx, on, o, sides)
}

// scenario returns the named scenario with the changes of the flags.
func (o *loadOptions) scenario(args []string) (loadgen.Scenario, error) {
	s := loadgen.Scenario{}.WithClient(o.exec)
	if len(args) > 0 {
		var err error
		if s, err = namedScenario(args[0], o.exec); err != nil {
			return s, err
		}
	}
	s, err := o.changed(s)
	if err != nil {
		return s, err
	}
	if err := s.Validate(); err != nil {
		return s, usageErrorf("", "%v", err)
	}
	if s.Duration == 0 && len(s.Stages) == 0 && !o.set.Changed("duration") {
		s.Duration = defaultDuration
	}
	return s, nil
}

// changed returns a scenario with the changes of the flags. It need not be valid.
func (o *loadOptions) changed(s loadgen.Scenario) (loadgen.Scenario, error) {
	for _, x := range loadgen.Settings() {
		if !o.set.Changed(x.Flag) {
			continue
		}
		if err := s.Set(x.Key, o.set.Lookup(x.Flag).Value.String()); err != nil {
			return s, usageErrorf("", "--%s: %v", x.Flag, err)
		}
	}
	if o.set.Changed("kind") && !o.set.Changed("reads") && !o.set.Changed("depth") && !o.suite {
		s.Usual()
	}
	if o.versus != "" {
		s.Versus = nil
		if err := s.Set("versus", "["+o.versus+"]"); err != nil {
			return s, usageErrorf("", "--versus: %v", err)
		}
		for i := range s.Versus {
			s.Versus[i].TTL = cmp.Or(s.Versus[i].TTL, s.Lock.TTL)
		}
	}
	for _, text := range o.thresholds {
		t, err := loadgen.ParseThreshold(text)
		if err != nil {
			return s, usageErrorf("", "--threshold: %v", err)
		}
		s.Thresholds = append(s.Thresholds, t)
	}
	if err := o.readBaselines(); err != nil {
		return s, err
	}
	for i, t := range s.Thresholds {
		if !t.Relative {
			continue
		}
		if o.baseline == nil {
			return s, usageErrorf("", "threshold %q: --baseline names no earlier report", t)
		}
		median, ok := o.baseline.Median(t.Figure)
		if !ok {
			return s, usageErrorf("", "threshold %q: the earlier reports have no %s", t, t.Figure)
		}
		s.Thresholds[i] = t.Against(median)
	}
	return s, nil
}

// readBaselines reads the earlier reports.
func (o *loadOptions) readBaselines() error {
	if len(o.baselines) > 0 && o.versus != "" {
		return usageErrorf("compare the locks in one run, or one lock with its earlier reports", "--baseline and --versus exclude each other")
	}
	for _, name := range o.baselines {
		file, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read the baseline: %w", err)
		}
		if o.baseline == nil {
			o.baseline = new(report.Baseline)
		}
		if err := o.baseline.Add(file); err != nil {
			return usageErrorf("", "--baseline: %s: %v", name, err)
		}
	}
	return nil
}

// namedScenario returns a ready-made scenario, or else reads a scenario file. Unless exec is
// "", it has client processes of this command instead of its own clients.
func namedScenario(name, exec string) (loadgen.Scenario, error) {
	if s, found := scenarios.Find(name); found {
		return s.WithClient(exec), nil
	}
	file, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return loadgen.Scenario{}, usageErrorf("there are "+strings.Join(scenarios.Names(), ", "), "there is no scenario and no file called %q", name)
	}
	if err != nil {
		return loadgen.Scenario{}, fmt.Errorf("read the scenario: %w", err)
	}
	s, err := loadgen.ParseWithClient(file, exec)
	if err != nil {
		return s, usageErrorf("", "%s: %v", name, err)
	}
	return s, nil
}

func (p output) scenariosCommand() *cobra.Command {
	var o fitOptions
	return withFlags(&cobra.Command{
		Use:   "scenarios [NAME] [flags]",
		Short: "List the ready-made scenarios, or print one as a file",
		Long: `Lists the ready-made scenarios. With NAME, it prints this scenario as a file that you
can change and run with locktop load.

--from fits a scenario to a recording, as a file whose comments say how well each figure
fits and on how many holds it rests: the rate, the keys, the kind of lock, its TTL and
renewals, and how long it is held. A recording shows no attempts, so the rate is a lower
bound. No name of a key or an owner is in the file, unless --names.`,
		Example: `  locktop scenarios
  locktop scenarios freeze > mine.yaml
  locktop scenarios --from /var/lib/locktop/recording --at 03:00 --for 15m > night.yaml
  locktop scenarios --from night.lockrec --match 'job:*' > jobs.yaml`,
		Args:                  oneOrNone,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.FixedCompletions(scenarios.Names(), cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			if o.from != "" {
				return p.fitScenario(&o)
			}
			if len(args) == 0 {
				return p.listScenarios(o.json)
			}
			s, err := namedScenario(args[0], "")
			if err != nil {
				return err
			}
			_, err = p.out.Write(s.Marshal())
			return err
		},
	}, o.flags())
}

// jsonScenario is one element of the output of `scenarios --json`.
type jsonScenario struct {
	Name        string       `json:"name"`
	Kind        loadgen.Kind `json:"kind"`
	DurationMS  int64        `json:"duration_ms"`
	WhatToWatch string       `json:"what_to_watch"`
}

func (p output) listScenarios(asJSON bool) error {
	if asJSON {
		return render.JSON(p.out, map[string][]jsonScenario{"scenarios": render.Each(scenarios.All(), func(s loadgen.Scenario) jsonScenario {
			return jsonScenario{s.Name, s.Lock.Kind, s.Duration.Milliseconds(), s.Watch}
		})})
	}
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tLOCK\tRUNS\tWATCH")
	for _, s := range scenarios.All() {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Name, s.Lock.Kind, humanize.Setting(s.Duration), s.Watch)
	}
	return t.Flush()
}
