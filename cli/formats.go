package cli

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"locktop/cli/render"
	"locktop/internal/shell"
	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// jsonFormat is one element of the output of `formats --json`.
type jsonFormat struct {
	Name         string          `json:"name"`
	Library      string          `json:"library"`
	Source       string          `json:"source"`
	Type         string          `json:"type"`
	Kinds        []keyspace.Kind `json:"kinds"`
	Confidence   string          `json:"confidence"` // greatest confidence of the format
	Signature    string          `json:"signature"`
	ShowsWaiters bool            `json:"shows_waiters"`  // the format shows waiters, or their number
	CanRelease   bool            `json:"can_release"`    // locktop can force-release the lock
	CanExtend    bool            `json:"can_extend"`     // locktop can set another deadline
	Wakes        string          `json:"wakes,omitzero"` // how waiters learn of a release; empty: they poll
	Samples      []jsonSample    `json:"samples"`
}

type jsonSample struct {
	Name     string   `json:"name"`
	Commands []string `json:"commands"` // in the syntax of redis-cli
}

func (o output) formatsCommand() *cobra.Command {
	var asJSON, asMarkdown bool
	set := flagSection("Output")
	set.BoolVar(&asJSON, "json", false, "print one JSON document; errors are JSON, too")
	set.BoolVar(&asMarkdown, "markdown", false, "print a page of documentation: docs/formats.md")
	return withFlags(&cobra.Command{
		Use:   "formats [flags] [NAME]",
		Short: "List known lock formats",
		Long: `Lists the lock formats that locktop recognises, in the order in which it tries
them. If several formats match a key equally well, the first one is used. Of one
format it also prints the source of its facts, with its version, and samples.`,
		Example: `  locktop formats
  locktop formats redisson
  locktop formats --json | jq -r '.formats[] | select(.type == "zset") | .name'`,
		Args: oneOrNone,
		RunE: func(_ *cobra.Command, names []string) error {
			if asJSON && asMarkdown {
				return usageErrorf("", "--json and --markdown exclude each other")
			}
			all := render.Each(formats.All(), formatOf)
			if len(names) > 0 {
				all = slices.DeleteFunc(all, func(f jsonFormat) bool { return f.Name != names[0] })
			}
			if len(all) == 0 {
				return usageErrorf(nearest(names[0]), "unknown format %q", names[0])
			}
			return o.printed("the formats", asJSON, map[string][]jsonFormat{"formats": all}, func(w io.Writer) error {
				switch {
				case asMarkdown:
					return writeFormatsPage(w, all)
				case len(all) == 1:
					return render.Written(w, all[0].section())
				}
				return writeFormatsTable(w, all, render.TerminalWidth(w))
			})
		},
	}, set)
}

func formatOf(f keyspace.Format) jsonFormat {
	j := jsonFormat{
		Name: f.Name, Library: f.Library, Source: f.Source, Type: f.Type, Signature: f.Signature, ShowsWaiters: f.ShowsWaiters,
	}
	if f.Actions != nil {
		j.CanRelease, j.CanExtend, j.Wakes = true, f.Actions.Extend != "", f.Actions.WakeHint
	}
	sure := keyspace.No
	for _, s := range formats.Samples(f.Name) {
		sure = max(sure, s.Want.Confidence)
		if !slices.Contains(j.Kinds, s.Want.Kind) {
			j.Kinds = append(j.Kinds, s.Want.Kind)
		}
		j.Samples = append(j.Samples, jsonSample{s.Name, render.Each(s.Commands, commandLine)})
	}
	j.Confidence = sure.String()
	return j
}

func (j jsonFormat) kinds() string {
	return strings.Join(render.Each(j.Kinds, func(k keyspace.Kind) string { return string(k) }), ", ")
}

// acts names the possible actions on locks of a format.
func (j jsonFormat) acts() string {
	switch {
	case j.CanExtend:
		return "release, extend"
	case j.CanRelease:
		return "release"
	default:
		return ""
	}
}

// commandLine returns a command in the syntax of redis-cli.
func commandLine(argv []string) string {
	words := slices.Clone(argv)
	for i, w := range words {
		if quoted := shell.RedisWord(w); w == "" || quoted != `"`+w+`"` || strings.ContainsAny(w, " '") {
			words[i] = quoted
		}
	}
	return strings.Join(words, " ")
}

// writeFormatsTable prints one format per line, with lines up to width cells if
// possible; a width of 0 means no limit. The last line names the omitted columns.
func writeFormatsTable(w io.Writer, all []jsonFormat, width int) error {
	cols := []render.Column{{Title: "FORMAT"}, {Title: "TYPE"}, {Title: "KIND"}, {Title: "CONFIDENCE"}, {Title: "ACTIONS", Spare: 1}, {Title: "LIBRARY", Least: 16}, {Title: "SIGNATURE", Least: 24, Spare: 2}}
	rows := render.Each(all, func(f jsonFormat) []string {
		return []string{f.Name, f.Type, f.kinds(), f.Confidence, f.acts(), f.Library, f.Signature}
	})
	var out strings.Builder
	omitted := render.Rows(&out, cols, rows, width)
	if len(omitted) > 0 {
		out.WriteString("in wider windows, in --json and --markdown: " + strings.Join(omitted, ", ") + "\n")
	}
	return render.Written(w, out.String())
}

// formatsHead is the beginning of docs/formats.md.
//
//go:embed formats.md
var formatsHead string

func writeFormatsPage(w io.Writer, all []jsonFormat) error {
	var out strings.Builder
	out.WriteString(formatsHead)
	out.WriteString("| format | library | type | kind | confidence | shows waiters | acts |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, f := range all {
		waiters := ""
		if f.ShowsWaiters {
			waiters = "yes"
		}
		fmt.Fprintf(&out, "| [%s](#%s) | %s | %s | %s | %s | %s | %s |\n", f.Name, f.Name, f.Library, f.Type, f.kinds(), f.Confidence, waiters, f.acts())
	}
	for _, f := range all {
		out.WriteString("\n" + f.section())
	}
	return render.Written(w, out.String())
}

// section returns the part of the page about one format.
func (j jsonFormat) section() string {
	var out strings.Builder
	fmt.Fprintf(&out, "## %s\n\n%s. Recognized by: %s.\n\nSource: %s\n", j.Name, j.Library, j.Signature, j.Source)
	if j.Wakes != "" {
		fmt.Fprintf(&out, "\nWhen it is released, its waiters %s.\n", j.Wakes)
	}
	for _, s := range j.Samples {
		fmt.Fprintf(&out, "\n%s:\n\n```\n%s\n```\n", strings.ToUpper(s.Name[:1])+s.Name[1:], strings.Join(s.Commands, "\n"))
	}
	return out.String()
}
