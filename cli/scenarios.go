package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"locktop/humanize"
	"locktop/loadgen/scenarios"
)

func (p *program) scenariosCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "scenarios [NAME]",
		Short: "The ready-made loads, or one of them as a file",
		Long: `Lists the scenarios that come with locktop. With a name it prints that one as a
scenario file, to be changed and run with locktop load.`,
		Example: `  locktop scenarios
  locktop scenarios freeze > mine.yaml`,
		Args:                  cobra.MaximumNArgs(1),
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeScenarios,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return p.listScenarios()
			}
			s, err := namedScenario(args[0])
			if err != nil {
				return err
			}
			_, err = p.out.Write(s.Marshal())
			return err
		},
	}
}

func (p *program) listScenarios() error {
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "SCENARIO\tLOCK\tRUNS\tWATCH\n")
	for _, s := range scenarios.All() {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Name, s.Lock.Kind, humanize.Setting(s.Duration), s.Watch)
	}
	return t.Flush()
}
