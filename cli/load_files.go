package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"locktop/cli/render"
	"locktop/loadgen"
	"locktop/loadgen/report"
)

// outputFiles has the names of the files that a load writes.
type outputFiles struct{ events, trace, csv, hgrm, html, check string }

func (o *outputFiles) addTo(set *pflag.FlagSet) {
	set.StringVar(&o.events, "events", "", "`file` for everything that happens, one JSON object a line")
	set.StringVar(&o.html, "html", "", "`file` for the report as one page with charts")
	set.StringVar(&o.csv, "csv", "", "`file` for a line a second")
	set.StringVar(&o.hgrm, "hgrm", "", "`file` for the percentiles of the wait, as HdrHistogram writes them")
	set.StringVar(&o.trace, "trace", "", "`file` for a timeline that Chrome and Perfetto show")
}

// openFiles has the open files of one variant.
type openFiles struct {
	outputFiles
	events *bufio.Writer
	trace  *report.Trace
	atEnd  map[string]*os.File // by name; written at the end of the run
	failed error               // first error of a write
	close  []func() error
}

// open creates the files of a variant. From the second variant on, the names have
// the variant's number. Errors appear here, before the run.
func (o outputFiles) open(side int) (*openFiles, error) {
	f := &openFiles{outputFiles: o, atEnd: make(map[string]*os.File)}
	for _, name := range []*string{&f.outputFiles.events, &f.outputFiles.trace, &f.csv, &f.hgrm, &f.html, &f.check} {
		*name = numbered(*name, side)
	}
	if name := f.outputFiles.events; name != "" {
		file, err := f.create(name)
		if err != nil {
			return nil, err
		}
		f.events = bufio.NewWriter(file)
	}
	if name := f.outputFiles.trace; name != "" {
		file, err := f.create(name)
		if err != nil {
			return nil, err
		}
		f.trace = report.NewTrace(file)
	}
	for _, name := range []string{f.csv, f.hgrm, f.html, f.check} {
		if name == "" {
			continue
		}
		file, err := f.create(name)
		if err != nil {
			return nil, err
		}
		f.atEnd[name] = file
	}
	return f, nil
}

// numbered inserts the number of a variant before the extension.
func numbered(name string, side int) string {
	if name == "" || side == 0 {
		return name
	}
	ext := filepath.Ext(name)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), side+1, ext)
}

func (f *openFiles) create(name string) (*os.File, error) {
	file, err := createPrivate(name)
	if err != nil {
		return nil, fmt.Errorf("write the outcome: %w", err)
	}
	f.close = append(f.close, file.Close)
	return file, nil
}

// listener returns a function that writes events, or nil if no file needs them.
func (f *openFiles) listener() func(loadgen.Event) {
	if f.events == nil && f.trace == nil {
		return nil
	}
	return func(e loadgen.Event) {
		if f.trace != nil {
			f.trace.Add(e)
		}
		if f.events != nil && f.failed == nil {
			f.failed = render.JSON(f.events, e)
		}
	}
}

// finish writes the remaining files and closes all.
func (f *openFiles) finish(run *loadgen.Run, r report.Result) error {
	errs := []error{f.failed}
	if f.events != nil {
		errs = append(errs, f.events.Flush())
	}
	if f.trace != nil {
		errs = append(errs, f.trace.Close())
	}
	drawn := func(w io.Writer) error {
		if r.Proof == nil {
			return nil
		}
		return r.Proof.WriteHTML(w)
	}
	percentiles := func(w io.Writer) error { return report.WriteHistogram(w, run) }
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{{f.csv, r.WriteCSV}, {f.hgrm, percentiles}, {f.html, r.WriteHTML}, {f.check, drawn}} {
		if file.name != "" {
			errs = append(errs, file.write(f.atEnd[file.name]))
		}
	}
	for _, end := range f.close {
		errs = append(errs, end())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the outcome: %w", err)
	}
	return nil
}

// createPrivate creates a file that only its owner can read, because it may contain
// tokens.
func createPrivate(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}
