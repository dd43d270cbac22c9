package loadgen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// field is a key of a scenario file with the function that reads its value.
type field struct {
	key string
	set func(*yaml.Node) error
}

// Parse parses a scenario file. An error is one line with the line number, the wrong
// key and a valid value.
func Parse(file []byte) (Scenario, error) {
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(file))
	err := documents.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return Scenario{}, errors.New("the file is empty; a scenario begins with a name: …")
	}
	if err == nil {
		if err = documents.Decode(&more); err == nil {
			return Scenario{}, fmt.Errorf("line %d: a second document begins; a file is one scenario", more.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		return Scenario{}, errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
	}
	if err := refuseAliases(&doc); err != nil {
		return Scenario{}, err
	}
	var s Scenario
	if err := mapping(doc.Content[0], "", s.fields()); err != nil {
		return Scenario{}, err
	}
	if err := s.Validate(); err != nil {
		return Scenario{}, placed(doc.Content[0], err)
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

// placed adds the line number to an error that begins with a key.
func placed(top *yaml.Node, err error) error {
	word, _, _ := strings.Cut(err.Error(), " ")
	word = strings.TrimSuffix(word, ":")
	// Some keys are inside another key, some are entries of a list.
	inside := map[string]string{"ttl": "lock", "renew": "lock", "wait": "lock", "fence": "lock", "threshold": "thresholds", "stage": "stages", "fault": "faults"}
	for _, key := range []string{word, inside[word]} {
		for i := 0; i+1 < len(top.Content); i += 2 {
			if top.Content[i].Value == key {
				return fmt.Errorf("line %d: %w", top.Content[i].Line, err)
			}
		}
	}
	return err
}

func (s *Scenario) fields() []field {
	return []field{
		{"name", text(&s.Name)},
		{"caption", text(&s.Caption)},
		{"watch", text(&s.Watch)},
		{"lock", s.Lock.read},
		{"versus", sequence(func(n *yaml.Node) error {
			var l Lock
			err := l.read(n)
			s.Versus = append(s.Versus, l)
			return err
		})},
		{"keys", s.Keys.read},
		{"clients", count(&s.Clients)},
		{"rate", arrivals(&s.Rate)},
		{"arrivals", word(&s.Arrivals)},
		{"hold", s.Hold.read},
		{"think", s.Think.read},
		{"reads", part(&s.Reads)},
		{"depth", count(&s.Depth)},
		{"patience", duration(&s.Patience)},
		{"conns", count(&s.Conns)},
		{"stages", sequence(func(n *yaml.Node) error {
			var st Stage
			err := mapping(n, "stages", []field{{"for", duration(&st.For)}, {"clients", count(&st.Clients)}, {"rate", arrivals(&st.Rate)}})
			s.Stages = append(s.Stages, st)
			return err
		})},
		{"faults", sequence(func(n *yaml.Node) error {
			var f Fault
			err := mapping(n, "faults", f.fields())
			s.Faults = append(s.Faults, f)
			return err
		})},
		{"thresholds", thresholds(&s.Thresholds)},
		{"expect", thresholds(&s.Expect)},
		{"seed", func(n *yaml.Node) error {
			seed, err := strconv.ParseUint(n.Value, 10, 64)
			s.Seed = seed
			return wrong(n, err, "a whole number")
		}},
		{"warmup", duration(&s.Warmup)},
		{"duration", duration(&s.Duration)},
	}
}

func (f *Fault) fields() []field {
	return []field{
		{"at", duration(&f.At)},
		{"fault", word(&f.Kind)},
		{"clients", whole(&f.Clients)},
		{"client", whole(&f.Client)},
		{"node", whole(&f.Node)},
		{"for", duration(&f.For)},
		{"delay", duration(&f.Delay)},
		{"jitter", duration(&f.Jitter)},
		{"by", duration(&f.By)},
		{"before", text(&f.Before)},
	}
}

// read reads a kind or a mapping.
func (l *Lock) read(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return word(&l.Kind)(n)
	}
	return mapping(n, "lock", []field{
		{"kind", word(&l.Kind)},
		{"ttl", lasting(&l.TTL)},
		{"renew", l.Renew.read},
		{"wait", l.Wait.read},
		{"fence", func(n *yaml.Node) error { return wrong(n, n.Decode(&l.Fence), "true or false") }},
	})
}

// read reads on, off or a mapping.
func (r *Renew) read(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		on, known := map[string]bool{"on": true, "true": true, "off": false, "false": false}[n.Value]
		if !known {
			return fmt.Errorf("line %d: renew: %q is neither on nor off, nor like {every: ttl/3, max: 0}", n.Line, n.Value)
		}
		r.Off = !on
		return nil
	}
	return mapping(n, "renew", []field{{"every", r.readEvery}, {"max", whole(&r.Max)}})
}

// readEvery reads a time or a part of the TTL. The TTL may be unknown yet.
func (r *Renew) readEvery(n *yaml.Node) error {
	r.Every, r.PerTTL = 0, 0
	var err error
	if by, isPart := strings.CutPrefix(n.Value, "ttl/"); isPart {
		r.PerTTL, err = strconv.Atoi(by)
	} else {
		r.Every, err = time.ParseDuration(n.Value)
	}
	if err != nil || r.Every <= 0 && r.PerTTL <= 1 {
		return fmt.Errorf("line %d: %q is no time; write one like 500ms or ttl/3", n.Line, n.Value)
	}
	return nil
}

// read reads notify, poll or a mapping.
func (w *Wait) read(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		switch n.Value {
		case "notify", "fair", "queue":
		case "poll":
			*w = Wait{Poll: defaultPoll, Jitter: 0.5}
		default:
			return fmt.Errorf("line %d: wait: %q is neither notify nor poll, nor like {poll: 50ms, jitter: 0.5, tries: 20}", n.Line, n.Value)
		}
		return nil
	}
	return mapping(n, "wait", []field{{"poll", duration(&w.Poll)}, {"jitter", part(&w.Jitter)}, {"tries", whole(&w.Tries)}})
}

// defaultPoll is the poll interval of "wait: poll".
const defaultPoll = 50 * time.Millisecond

func (k *Keys) read(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return count(&k.N)(n)
	}
	return mapping(n, "keys", []field{{"pick", word(&k.Pick)}, {"n", count(&k.N)}, {"skew", real(&k.Skew)}, {"prefix", text(&k.Prefix)}})
}

// read reads the form of ParseDist or a mapping.
func (d *Dist) read(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		parsed, err := ParseDist(n.Value)
		if err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
		*d = parsed
		return nil
	}
	if err := mapping(n, "a distribution", []field{
		{"dist", word(&d.Shape)}, {"mean", duration(&d.Mean)},
		{"min", duration(&d.Low)}, {"max", duration(&d.High)},
		{"p50", duration(&d.Low)}, {"p99", duration(&d.High)},
		{"fast", duration(&d.Low)}, {"slow", duration(&d.High)}, {"share", part(&d.Share)},
	}); err != nil {
		return err
	}
	if err := d.Shape.wants(n); err != nil {
		return err
	}
	if err := d.validate(); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// wants returns an error unless a mapping has exactly the keys of the shape.
func (s Shape) wants(n *yaml.Node) error {
	keys := map[Shape][]string{
		ShapeConst: {"mean"}, ShapeExp: {"mean"}, ShapeUniform: {"min", "max"},
		ShapeLogNormal: {"p50", "p99"}, ShapeBimodal: {"fast", "slow", "share"},
	}[s]
	if keys == nil {
		return nil // validate reports an unknown shape
	}
	given := 0
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Value == "dist" {
			continue
		}
		if !slices.Contains(keys, key.Value) {
			return fmt.Errorf("line %d: %s has no %s; it has %s", key.Line, s, key.Value, strings.Join(keys, " "))
		}
		given++
	}
	if given < len(keys) {
		return fmt.Errorf("line %d: %s needs %s", n.Line, s, strings.Join(keys, " "))
	}
	return nil
}

// mapping reads the keys of a mapping. A repeated key is an error.
func mapping(n *yaml.Node, where string, fields []field) error {
	if where != "" {
		where += ": "
	}
	var keys []string
	for _, f := range fields {
		keys = append(keys, f.key)
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %snot a mapping; its keys are %s", n.Line, where, strings.Join(keys, " "))
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := slices.Index(keys, key.Value)
		if at < 0 {
			return fmt.Errorf("line %d: %sthere is no key %q%s; there are %s", key.Line, where, key.Value, nearest(key.Value, keys), strings.Join(keys, " "))
		}
		if first, twice := seen[key.Value]; twice {
			return fmt.Errorf("line %d: %s%s is there already, in line %d", key.Line, where, key.Value, first)
		}
		seen[key.Value] = key.Line
		if err := fields[at].set(value); err != nil {
			return inKey(key.Value, err)
		}
	}
	return nil
}

// inKey adds the key to an error that begins with its line number.
func inKey(key string, err error) error {
	line, rest, found := strings.Cut(err.Error(), ": ")
	if !found || !strings.HasPrefix(line, "line ") || strings.HasPrefix(rest, key+":") {
		return err
	}
	return fmt.Errorf("%s: %s: %s", line, key, rest)
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

// sequence reads every entry of a list.
func sequence(each func(*yaml.Node) error) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.SequenceNode {
			return fmt.Errorf("line %d: not a list; write one entry a line, each with a dash", n.Line)
		}
		for _, entry := range n.Content {
			if err := each(entry); err != nil {
				return err
			}
		}
		return nil
	}
}

// wrong describes a valid value, if err is not nil.
func wrong(n *yaml.Node, err error, right string) error {
	if err == nil && n.Kind == yaml.ScalarNode {
		return nil
	}
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: not %s", n.Line, right)
	}
	return fmt.Errorf("line %d: %q is not %s", n.Line, n.Value, right)
}

func text(to *string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		*to = n.Value
		return wrong(n, nil, "a text")
	}
}

func word[T ~string](to *T) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		*to = T(n.Value)
		return wrong(n, nil, "a word")
	}
}

func whole(to *int) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.Atoi(n.Value)
		*to = v
		return wrong(n, err, "a whole number")
	}
}

// count reads a number of at least 1, because 0 would mean the default.
func count(to *int) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.Atoi(n.Value)
		if err == nil && v < 1 {
			return fmt.Errorf("line %d: %d is too few; write at least 1", n.Line, v)
		}
		*to = v
		return wrong(n, err, "a whole number")
	}
}

func real(to *float64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.ParseFloat(n.Value, 64)
		*to = v
		return wrong(n, err, "a number")
	}
}

func part(to *float64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := parseShare(n.Value)
		*to = v
		return wrong(n, err, "a share like 80% or 0.8")
	}
}

func duration(to *time.Duration) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := time.ParseDuration(n.Value)
		*to = v
		return wrong(n, err, "a time like 500ms or 2m")
	}
}

// lasting reads a time above 0, because 0 would mean the default.
func lasting(to *time.Duration) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if err := duration(to)(n); err != nil || *to > 0 {
			return err
		}
		return fmt.Errorf("line %d: %s is too short; write a time like 500ms or 2m", n.Line, n.Value)
	}
}

func arrivals(to *float64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := ParseRate(n.Value)
		*to = v
		return wrong(n, err, "a rate like 500/s or 30/m")
	}
}

func thresholds(to *[]Threshold) func(*yaml.Node) error {
	return sequence(func(n *yaml.Node) error {
		t, err := ParseThreshold(n.Value)
		if err == nil {
			err = t.validate()
		}
		*to = append(*to, t)
		if err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
		return nil
	})
}

// ParseRate parses 500, 500/s or 30/m, and returns arrivals per second.
func ParseRate(text string) (float64, error) {
	number, per := text, 1.0
	for suffix, seconds := range map[string]float64{"/s": 1, "/m": 60, "/min": 60, "/h": 3600} {
		if n, found := strings.CutSuffix(text, suffix); found {
			number, per = n, seconds
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0) {
		return 0, fmt.Errorf("%q is no rate; write one like 500/s or 30/m", text)
	}
	return v / per, nil
}

// Marshal returns the scenario in the file format of [Parse].
func (s Scenario) Marshal() []byte {
	var b bytes.Buffer
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	line("name", quoted(s.Name))
	line("caption", quoted(s.Caption))
	line("watch", quoted(s.Watch))
	line("lock", s.Lock.YAML())
	lines(&b, "versus", s.Versus, Lock.YAML)
	line("keys", s.Keys.YAML())
	line("clients", notZero(s.Clients))
	if s.Rate > 0 {
		line("rate", FormatRate(s.Rate))
	}
	line("arrivals", string(s.Arrivals))
	line("hold", s.Hold.String())
	line("think", s.Think.String())
	if s.Reads > 0 {
		line("reads", FormatShare(s.Reads))
	}
	line("depth", notZero(s.Depth))
	line("patience", notZeroTime(s.Patience))
	line("conns", notZero(s.Conns))
	lines(&b, "stages", s.Stages, Stage.YAML)
	lines(&b, "faults", s.Faults, Fault.YAML)
	lines(&b, "thresholds", s.Thresholds, func(t Threshold) string { return strconv.Quote(t.String()) })
	lines(&b, "expect", s.Expect, func(t Threshold) string { return strconv.Quote(t.String()) })
	if s.Seed > 0 {
		line("seed", strconv.FormatUint(s.Seed, 10))
	}
	line("warmup", notZeroTime(s.Warmup))
	line("duration", notZeroTime(s.Duration))
	return b.Bytes()
}

func lines[T any](b *bytes.Buffer, key string, all []T, each func(T) string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:\n", key)
	for _, one := range all {
		fmt.Fprintf(b, "  - %s\n", each(one))
	}
}

// flow joins pairs of key and value without the empty values.
func flow(pairs ...string) string {
	var all []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, pairs[i]+": "+pairs[i+1])
		}
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// YAML returns the lock in the file format, in one line.
func (l Lock) YAML() string {
	renew, wait, fence := "", "", ""
	switch {
	case l.Renew.Off:
		renew = "off"
	case l.Renew.Every > 0 || l.Renew.PerTTL > 0 || l.Renew.Max > 0:
		every := notZeroTime(l.Renew.Every)
		if every == "" && l.Renew.PerTTL > 0 {
			every = fmt.Sprint("ttl/", l.Renew.PerTTL)
		}
		renew = flow("every", every, "max", notZero(l.Renew.Max))
	}
	if l.Wait.Poll > 0 {
		wait = flow("poll", short(l.Wait.Poll), "jitter", strconv.FormatFloat(l.Wait.Jitter, 'g', -1, 64), "tries", notZero(l.Wait.Tries))
	}
	if l.Fence {
		fence = "true"
	}
	return flow("kind", string(l.Kind), "ttl", notZeroTime(l.TTL), "renew", renew, "wait", wait, "fence", fence)
}

// YAML returns the keys in the file format, in one line.
func (k Keys) YAML() string {
	skew, prefix := "", ""
	if k.Skew > 0 {
		skew = strconv.FormatFloat(k.Skew, 'g', -1, 64)
	}
	if k.Prefix != "" {
		prefix = quoted(k.Prefix)
	}
	return flow("pick", string(k.Pick), "n", notZero(k.N), "skew", skew, "prefix", prefix)
}

// YAML returns the stage in the file format, in one line.
func (st Stage) YAML() string {
	rate := ""
	if st.Rate > 0 {
		rate = FormatRate(st.Rate)
	}
	return flow("for", short(st.For), "clients", notZero(st.Clients), "rate", rate)
}

// YAML returns the fault in the file format, in one line.
func (f Fault) YAML() string {
	return flow("at", short(f.At), "fault", string(f.Kind), "clients", notZero(f.Clients), "client", notZero(f.Client),
		"node", notZero(f.Node), "for", notZeroTime(f.For), "delay", notZeroTime(f.Delay), "jitter", notZeroTime(f.Jitter),
		"by", notZeroTime(f.By), "before", f.Before)
}

// FormatRate formats arrivals per second so that [ParseRate] returns the same number.
func FormatRate(rate float64) string { return strconv.FormatFloat(rate, 'g', -1, 64) + "/s" }

func notZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func notZeroTime(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return short(d)
}

// quoted quotes a text, except an empty one.
func quoted(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}

// Set sets a key of the scenario to a value of the file format. A path like lock.ttl
// leads into a mapping. An error describes a valid value.
func (s *Scenario) Set(path, value string) error {
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	if strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[") {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(value), &doc); err != nil || len(doc.Content) == 0 {
			return fmt.Errorf("%q is not in order", value)
		}
		node = doc.Content[0]
	}
	keys := strings.Split(path, ".")
	for _, key := range slices.Backward(keys) {
		node = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, node}}
	}
	err := mapping(node, "", s.fields())
	if err == nil {
		return nil
	}
	// Remove line and key: the caller knows the key, and there is no file.
	_, what, _ := strings.Cut(err.Error(), ": ")
	for _, key := range keys {
		what = strings.TrimPrefix(what, key+": ")
	}
	return errors.New(what)
}
