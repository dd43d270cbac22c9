package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(p.out, "locktop %s, %s, %s/%s\n", build(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// build returns the version, and the commit if the build has one.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	version := info.Main.Version
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ", modified"
		}
	}
	if commit == "" {
		return version
	}
	return fmt.Sprintf("%s (commit %s%s)", version, commit, dirty)
}
