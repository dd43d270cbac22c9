package connect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Configuration is the configuration file of the user. The tags of its fields are the only list
// of its keys: the reader, its errors and the example follow them.
type Configuration struct {
	Contexts map[string]Context `yaml:"contexts" about:"addresses with their options; locktop --context NAME uses one"`
	Keys     map[string]string  `yaml:"keys" about:"keys of the screen: names like x, X, ctrl+x, alt+x, f5, space, with blanks between them"`
	Commands []Command          `yaml:"commands" about:"programs that a key of the screen runs for the selected lock, without a shell"`

	path     string
	root     yaml.Node
	missing  bool // there is no file
	readable bool // by users other than the owner
}

// Command is a program that a key of the screen runs.
type Command struct {
	Key  string   `yaml:"key" example:"K" about:"its key"`
	Name string   `yaml:"name" example:"pod log" about:"its name in the last line"`
	Run  []string `yaml:"run" example:"[kubectl, logs, \"{host}\"]" about:"program and arguments"`
}

// ConfigurationPath returns the path of the configuration file, which may not exist.
func ConfigurationPath() (string, error) {
	dir, err := os.UserConfigDir() // XDG_CONFIG_HOME, or the directory of the system
	if err != nil {
		return "", fmt.Errorf("find the configuration: %w", err)
	}
	return filepath.Join(dir, "locktop", "config.yaml"), nil
}

// ReadConfiguration reads the configuration file; without a file, it is empty. It refuses a file that others can
// change, because the file says where to connect and what to run.
func ReadConfiguration() (*Configuration, error) {
	path, err := ConfigurationPath()
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Configuration{path: path, missing: true}, nil
	}
	if err != nil {
		return nil, usagef("", "read the configuration: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, usagef("", "read the configuration: %w", err)
	}
	if othersCanChange(info) {
		return nil, usagef(chmodHint(path), "%s says where to connect, and others may change it", path)
	}
	c, err := ParseConfiguration(path, file)
	if err == nil {
		c.readable = permits(info, 0o077)
	}
	return c, err
}

// maxConfiguration is the largest configuration in bytes that ParseConfiguration reads.
const maxConfiguration = 1 << 20

// ParseConfiguration parses a configuration from the file with a path. Its error is one line
// with the line number in the file. It quotes nothing of the file except keys, because a value
// may be a password.
func ParseConfiguration(path string, r io.Reader) (*Configuration, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxConfiguration))
	if err != nil {
		return nil, usagef("", "read the configuration: %w", err)
	}
	c := &Configuration{path: path}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, usagef("", "%s: %w", path, configurationError(err))
	}
	_ = yaml.Unmarshal(raw, &c.root) // it is YAML
	return c, nil
}

// Path returns the path of the file.
func (c *Configuration) Path() string { return c.path }

// CheckContexts returns an error for a value of a context that is wrong whatever the flags say.
// check returns an error for a key whose values only the caller knows; it may be nil.
func (c *Configuration) CheckContexts(check func(Context) (key string, err error)) error {
	for _, name := range definedNames(c.Contexts) {
		s := c.Contexts[name]
		s.Name = name
		if err := c.checkContext(s); err != nil {
			return err
		}
		if key, err := check(s); err != nil {
			return c.Wrong(err, "contexts", name, key)
		}
	}
	return nil
}

func (c *Configuration) checkContext(s Context) error {
	key, err := s.check()
	if err != nil {
		return c.Wrong(err, "contexts", s.Name, key)
	}
	return nil
}

// Wrong returns the error about the value at a place of the file, with the line number. keys lead
// to the value; the index of a list is a number.
func (c *Configuration) Wrong(err error, keys ...string) error {
	hint := ""
	if e, ok := errors.AsType[*Error](err); ok {
		hint = e.Hint
	}
	node := &c.root
	if len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := node.Line
	for _, key := range keys {
		if node, line = child(node, key, line); node == nil {
			break
		}
	}
	return usagef(hint, "%s: line %d: %w", c.path, line, err)
}

// child returns the value of a key of a mapping, or the item of a list, and its line; nil and the
// line above if there is none.
func child(n *yaml.Node, key string, above int) (*yaml.Node, int) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(key); err == nil && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1], n.Content[i].Line
		}
	}
	return nil, above
}

// configurationKey is a key of the configuration, from the tags of its field.
type configurationKey struct{ name, initial, example, about string }

// keysOf returns the keys of a struct of the configuration.
func keysOf(of reflect.Type) []configurationKey {
	var all []configurationKey
	for i := range of.NumField() {
		tag := of.Field(i).Tag
		if name := tag.Get("yaml"); name != "" && name != "-" {
			all = append(all, configurationKey{name, tag.Get("default"), tag.Get("example"), tag.Get("about")})
		}
	}
	return all
}

var (
	unknownKey = regexp.MustCompile(`line (\d+): field (.+) not found in type \w+\.(\w+)`)
	wrongType  = regexp.MustCompile(`line (\d+): cannot unmarshal .* into (\S+)$`)
	twice      = regexp.MustCompile(`line (\d+): mapping key .* already defined`)
	anyLine    = regexp.MustCompile(`line \d+`)
)

// configurationError rewrites an error of the YAML parser so that it quotes no values.
func configurationError(err error) error {
	said, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n"), "\n")
	if m := unknownKey.FindStringSubmatch(said); m != nil {
		var names []string
		for _, of := range []reflect.Type{reflect.TypeFor[Configuration](), reflect.TypeFor[Context](), reflect.TypeFor[Command]()} {
			if of.Name() == m[3] {
				for _, k := range keysOf(of) {
					names = append(names, k.name)
				}
			}
		}
		return fmt.Errorf("line %s: there is no key %q here; there are %s", m[1], m[2], strings.Join(names, ", "))
	}
	if m := wrongType.FindStringSubmatch(said); m != nil {
		valid := map[string]string{"bool": "true or false", "string": "a text", "[]string": "a list like [a, b]", "[]connect.Command": "a list of commands"}
		return fmt.Errorf("line %s: unexpected value; valid is %s", m[1], cmp.Or(valid[m[2]], "a mapping of keys"))
	}
	if m := twice.FindStringSubmatch(said); m != nil {
		return fmt.Errorf("line %s: duplicate key", m[1])
	}
	if line := anyLine.FindString(said); line != "" {
		return fmt.Errorf("%s: unexpected value", line)
	}
	return errors.New("it is not YAML")
}

// ExampleKey is an action of the screen for the example of a configuration.
type ExampleKey struct{ Name, Keys, About string }

// Example returns a configuration with every key, its default and a line of explanation. Keys
// without a default are comments with an example. place are the words for {…} in a command.
func Example(keys []ExampleKey, place []string) string {
	var b strings.Builder
	path, _ := ConfigurationPath()
	fmt.Fprintf(&b, "# The configuration of locktop, %s\n", path)
	b.WriteString("# A value, and that of a comment below keys, is the default. A line like \"# url: …\" is an example of a key without one.\n")
	top := keysOf(reflect.TypeFor[Configuration]())
	about := func(name string) {
		i := slices.IndexFunc(top, func(k configurationKey) bool { return k.name == name })
		fmt.Fprintf(&b, "\n# %s\n", top[i].about)
	}
	about("contexts")
	b.WriteString("contexts:\n  example:\n")
	for _, k := range keysOf(reflect.TypeFor[Context]()) {
		fmt.Fprintf(&b, "    # %s\n    %s\n", k.about, k.line())
	}
	about("keys")
	b.WriteString("keys:\n")
	for i, k := range keys {
		if i == 0 || keys[i-1].About != k.About {
			fmt.Fprintf(&b, "  # %s\n", k.About)
		}
		fmt.Fprintf(&b, "  # %s: %s\n", k.Name, strconv.Quote(k.Keys)) // a comment, so that a later default arrives
	}
	about("commands")
	fmt.Fprintf(&b, "# The arguments may have %s of the lock.\ncommands: []\n", strings.Join(place, " "))
	for i, k := range keysOf(reflect.TypeFor[Command]()) {
		mark := []string{"  - ", "    "}[min(i, 1)]
		fmt.Fprintf(&b, "#%s%s: %s  # %s\n", mark, k.name, k.example, k.about)
	}
	return b.String()
}

// line returns the line of a key with its default, or as a comment with its example.
func (k configurationKey) line() string {
	if k.initial == "" {
		return "# " + k.name + ": " + k.example
	}
	return k.name + ": " + k.initial
}
