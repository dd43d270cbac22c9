package loadgen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Parse parses a scenario file. An error is one line with the line number, the wrong
// key and a valid value.
func Parse(file []byte) (Scenario, error) { return ParseWithClient(file, "") }

// Read parses a scenario file like [Parse], and does not validate the scenario.
func Read(file []byte) (Scenario, error) {
	s, _, err := read(file)
	return s, err
}

func read(file []byte) (s Scenario, top *yaml.Node, err error) {
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(file))
	err = documents.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return s, nil, errors.New("the file is empty; a scenario begins with a name: …")
	}
	if err == nil {
		if err = documents.Decode(&more); err == nil {
			return s, nil, fmt.Errorf("line %d: a second document begins; a file is one scenario", more.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		return s, nil, errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
	}
	if err := refuseAliases(&doc); err != nil {
		return s, nil, err
	}
	top = doc.Content[0]
	if err := readMapping(top, fieldsOf(reflect.ValueOf(&s).Elem())); err != nil {
		return Scenario{}, nil, err
	}
	return s, top, nil
}

// ParseWithClient parses a scenario file for client processes of a command; see
// [Scenario.WithClient]. What goes with these is valid, whatever the kind of lock in the file.
func ParseWithClient(file []byte, command string) (Scenario, error) {
	s, top, err := read(file)
	if err != nil {
		return s, err
	}
	s = s.WithClient(command)
	if err := s.Validate(); err != nil {
		key, _, _ := strings.Cut(err.Error(), " ")
		if line := lineOf(top, strings.TrimSuffix(key, ":")); line > 0 {
			return Scenario{}, fmt.Errorf("line %d: %w", line, err)
		}
		return Scenario{}, err
	}
	return s, nil
}

// refuseAliases returns an error if n contains an alias.
func refuseAliases(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		return fmt.Errorf("line %d: *%s: a scenario has no aliases; write the value again", n.Line, n.Value)
	}
	for _, inner := range n.Content {
		if err := refuseAliases(inner); err != nil {
			return err
		}
	}
	return nil
}

// lineOf returns the line of a key, also inside another key, or of the list whose
// entries have that name; 0 = there is none.
func lineOf(n *yaml.Node, name string) int {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; key.Value == name || key.Value == name+"s" {
			return key.Line
		}
		if line := lineOf(n.Content[i+1], name); line > 0 {
			return line
		}
	}
	return 0
}

// Set sets a key of the scenario to a value of the file format. A path like lock.ttl
// leads into a mapping. An error describes a valid value.
func (s *Scenario) Set(path, value string) error {
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	if strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[") {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(value), &doc); err != nil || len(doc.Content) == 0 {
			return fmt.Errorf("%q is not valid YAML", value)
		}
		node = doc.Content[0]
	}
	keys := strings.Split(path, ".")
	for _, key := range slices.Backward(keys) {
		node = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, node}}
	}
	if err := readMapping(node, fieldsOf(reflect.ValueOf(s).Elem())); err != nil {
		// The caller knows the keys of the path, and there is no file.
		inner := err.keys[min(len(keys), len(err.keys)):]
		return errors.New(strings.Join(append(inner, err.what), ": "))
	}
	return nil
}

// fileError is an error in a scenario file.
type fileError struct {
	line int
	keys []string // path to the wrong value
	what string
}

func (e *fileError) Error() string {
	return fmt.Sprintf("line %d: %s", e.line, strings.Join(append(slices.Clone(e.keys), e.what), ": "))
}

func wrong(n *yaml.Node, format string, args ...any) *fileError {
	return &fileError{line: n.Line, what: fmt.Sprintf(format, args...)}
}

// field is a field of a struct that a scenario file can set. Its tags say how:
//
//	yaml:"KEY,OPTION,…" default:"VALUE"
//
// KEY may be several names of the field, with spaces between them. Two fields with the
// same key are two ways to write one value: the first that can read it takes it. An
// option is the name of a format, or one of:
//
//	positive  0 is refused, because a zero field means its default
//	always    written even if it is zero
//	short     set by a scalar in place of the mapping
//	live      a change needs no new start of the clients; see [Live]
//
// The tags flag, usage and form give a field of a scenario its place in the command line and in the
// form of the screen; see [Setting]. So a new field is one line, with a case in validate if not every
// value is valid, and one sentence in docs/load.md. A test makes docs/scenario.schema.json from the tags.
type field struct {
	keys    []string
	options []string
	initial string // default value
	value   reflect.Value
}

// fieldsOf returns the fields of a struct that have a tag, in order.
func fieldsOf(v reflect.Value) []field {
	var all []field
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if options := strings.Split(tag.Get("yaml"), ","); options[0] != "" {
			all = append(all, field{strings.Fields(options[0]), options[1:], tag.Get("default"), v.Field(i)})
		}
	}
	return all
}

// named returns the fields with a key.
func named(key string, fields []field) []field {
	return slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return !slices.Contains(f.keys, key) })
}

func (f field) is(option string) bool { return slices.Contains(f.options, option) }

// format returns the format that an option names, or else that of the type.
func (f field) format() format {
	for _, name := range append(slices.Clone(f.options), f.value.Type().String()) {
		if known, ok := formats[name]; ok {
			return known
		}
	}
	return formats["word"]
}

// format is how a scalar is written.
type format struct {
	valid string // describes valid values
	parse func(text string) (any, error)
	print func(v reflect.Value) string
}

// formats are the formats by the name of their option or of their type.
var formats = map[string]format{
	"string":        formatAs("a text", verbatim, strconv.Quote),
	"word":          formatAs("a word", verbatim, strings.Clone),
	"bool":          formatAs("true or false", parseBool, strconv.FormatBool),
	"int":           formatAs("a whole number", strconv.Atoi, strconv.Itoa),
	"uint64":        formatAs("a whole number", func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }, func(n uint64) string { return strconv.FormatUint(n, 10) }),
	"float64":       formatAs("a number", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }, formatFloat),
	"fraction":      formatAs("a share like 80% or 0.8", parseShare, formatFloat),
	"share":         formatAs("a share like 80% or 0.8", parseShare, FormatShare),
	"rate":          formatAs("a rate like 500/s or 30/m", ParseRate, FormatRate),
	"time.Duration": formatAs("a time like 500ms or 2m", time.ParseDuration, short),
	"per-ttl":       formatAs("a time like 500ms or ttl/3", parsePerTTL, func(n int) string { return "ttl/" + strconv.Itoa(n) }),
}

func formatAs[T any](valid string, parse func(string) (T, error), print func(T) string) format {
	return format{
		valid,
		func(text string) (any, error) { return parse(text) },
		func(v reflect.Value) string { return print(v.Convert(reflect.TypeFor[T]()).Interface().(T)) },
	}
}

func verbatim(text string) (string, error) { return text, nil }

// parseBool also accepts yes, no, on and off, as YAML does.
func parseBool(text string) (b bool, err error) {
	err = yaml.Unmarshal([]byte(text), &b)
	return b, err
}

func formatFloat(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// read reads the value of a field.
func (f field) read(n *yaml.Node) *fileError {
	switch {
	case f.value.Kind() == reflect.Slice:
		return readList(n, f.value)
	case f.value.Kind() == reflect.Struct:
		return readStruct(n, f.value)
	case n.Kind != yaml.ScalarNode:
		return wrong(n, "not %s", f.format().valid)
	}
	parsed, err := f.format().parse(n.Value)
	if err != nil {
		return wrong(n, "%q is not %s", n.Value, f.format().valid)
	}
	v := reflect.ValueOf(parsed).Convert(f.value.Type())
	switch {
	case !f.is("positive") || v.Int() > 0:
		f.value.Set(v)
		return nil
	case v.Kind() == reflect.Int:
		return wrong(n, "%s is too few; write at least 1", n.Value)
	}
	return wrong(n, "%s is too short; write %s", n.Value, f.format().valid)
}

// readList adds the entries of a list.
func readList(n *yaml.Node, to reflect.Value) *fileError {
	if n.Kind != yaml.SequenceNode {
		return wrong(n, "not a list; write one entry a line, each with a dash")
	}
	for _, entry := range n.Content {
		v := reflect.New(to.Type().Elem()).Elem()
		if err := readStruct(entry, v); err != nil {
			return err
		}
		to.Set(reflect.Append(to, v))
	}
	return nil
}

// shortForm is a struct that a scalar can stand for. It is written as shortText, or as
// a mapping if that is "".
type shortForm interface {
	parseShort(text string) error
	shortText() string
}

// readStruct reads a mapping, or the scalar that stands for it.
func readStruct(n *yaml.Node, to reflect.Value) *fileError {
	fields := fieldsOf(to)
	if n.Kind == yaml.ScalarNode || len(fields) == 0 {
		if s, ok := to.Addr().Interface().(shortForm); ok {
			if err := s.parseShort(n.Value); err != nil {
				return wrong(n, "%v", err)
			}
			return nil
		}
		if i := slices.IndexFunc(fields, func(f field) bool { return f.is("short") }); i >= 0 {
			return fields[i].read(n)
		}
	}
	if err := readMapping(n, fields); err != nil {
		return err
	}
	if c, ok := to.Addr().Interface().(interface{ checkMapping(*yaml.Node) *fileError }); ok {
		return c.checkMapping(n)
	}
	return nil
}

// readMapping reads the keys of a mapping. A repeated key is an error.
func readMapping(n *yaml.Node, fields []field) *fileError {
	var keys []string
	for _, f := range fields {
		keys = append(keys, f.keys...)
	}
	keys = slices.Compact(keys)
	if n.Kind != yaml.MappingNode {
		return wrong(n, "not a mapping; its keys are %s", strings.Join(keys, " "))
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !slices.Contains(keys, key.Value) {
			return wrong(key, "there is no key %q%s; there are %s", key.Value, nearest(key.Value, keys), strings.Join(keys, " "))
		}
		if first, twice := seen[key.Value]; twice {
			return wrong(key, "%s is there already, in line %d", key.Value, first)
		}
		seen[key.Value] = key.Line
		if err := readKey(value, named(key.Value, fields)); err != nil {
			err.keys = append([]string{key.Value}, err.keys...)
			return err
		}
	}
	return nil
}

// readKey reads a value into the first field that can read it, and clears the others.
func readKey(n *yaml.Node, fields []field) *fileError {
	if len(fields) == 1 {
		return fields[0].read(n)
	}
	var err *fileError
	for _, f := range fields {
		f.value.SetZero()
	}
	for _, f := range fields {
		if err = f.read(n); err == nil {
			break
		}
	}
	return err
}

// nearest suggests a similar key, if there is one.
func nearest(word string, keys []string) string {
	best, distance := "", 3
	for _, key := range keys {
		if d := edits(word, key); d < distance {
			best, distance = key, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q", best)
}

// edits returns how many letters to change, add or remove: the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// setDefaults sets the zero fields of a struct to the values of their default tags.
func setDefaults(to reflect.Value) {
	for _, f := range fieldsOf(to) {
		switch {
		case f.value.IsZero() && f.initial != "":
			if err := f.read(&yaml.Node{Kind: yaml.ScalarNode, Value: f.initial}); err != nil {
				panic(err)
			}
		case f.value.Kind() == reflect.Struct:
			setDefaults(f.value)
		}
	}
}

// Marshal returns the scenario in the file format of [Parse].
func (s Scenario) Marshal() []byte {
	var b bytes.Buffer
	for _, f := range fieldsOf(reflect.ValueOf(s)) {
		switch {
		case f.value.IsZero() && !f.is("always"):
		case f.value.Kind() == reflect.Slice:
			fmt.Fprintf(&b, "%s:\n", f.keys[0])
			for i := range f.value.Len() {
				fmt.Fprintf(&b, "  - %s\n", flow(f.value.Index(i)))
			}
		default:
			fmt.Fprintf(&b, "%s: %s\n", f.keys[0], f.text())
		}
	}
	return b.Bytes()
}

// text returns the value of a field in one line.
func (f field) text() string {
	if f.value.Kind() == reflect.Struct {
		return flow(f.value)
	}
	return f.format().print(f.value)
}

// flow returns a struct in one line, without its zero fields.
func flow(v reflect.Value) string {
	var all []string
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	if s, ok := p.Interface().(shortForm); ok && s.shortText() != "" {
		return s.shortText()
	}
	for _, f := range fieldsOf(v) {
		if !f.value.IsZero() || f.is("always") {
			all = append(all, f.keys[0]+": "+f.text())
		}
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// YAML returns a part of a scenario in the file format, in one line.
func YAML[T Lock | Keys | Stage | Fault](part T) string { return flow(reflect.ValueOf(part)) }

// Setting is a field of a scenario, as its tags describe it: its place in a file, in a command line and in
// a form.
type Setting struct {
	Key   string // in a file, like lock.ttl; see [Scenario.Set]
	Flag  string // "" = none
	Usage string // of the flag, with <> around the word for its value
	Form  string // place in the form, and name there, like "6 lease"; "" = none

	index []int
}

// Settings returns the fields that have a flag or a place in the form, in the order of a file.
func Settings() []Setting { return settingsIn(reflect.TypeFor[Scenario](), "", nil) }

func settingsIn(t reflect.Type, path string, index []int) (all []Setting) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		x := Setting{path + key, f.Tag.Get("flag"), f.Tag.Get("usage"), f.Tag.Get("form"), append(slices.Clone(index), i)}
		if x.Flag != "" || x.Form != "" {
			all = append(all, x)
		}
		if f.Type.Kind() == reflect.Struct {
			all = append(all, settingsIn(f.Type, x.Key+".", x.index)...)
		}
	}
	return all
}

// In returns a pointer to the value of the setting in s.
func (x Setting) In(s *Scenario) any {
	return reflect.ValueOf(s).Elem().FieldByIndex(x.index).Addr().Interface()
}

// Usual sets what shows the point of the kind of lock, unless it is set: readers, or entries.
func (s *Scenario) Usual() {
	switch k := s.Lock.Kind; {
	case k != Exec && k.shared() && s.Reads == 0:
		s.Reads = 0.8
	case k == Reentrant && s.Depth == 0:
		s.Depth = 3
	}
}
