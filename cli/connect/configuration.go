package connect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
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
	raw, err := io.ReadAll(io.LimitReader(r, maxConfiguration+1))
	if err == nil && len(raw) > maxConfiguration {
		err = fmt.Errorf("%s has more than 1 MiB", path)
	}
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
// check returns an error for a key whose values only the caller knows.
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

// Context is one context of the configuration file. Flags override its values.
type Context struct {
	Name         string   `yaml:"-"`
	URL          string   `yaml:"url" example:"redis://10.0.0.5:6379/0" about:"address, as in --url"`
	Command      string   `yaml:"password_command" example:"pass show redis/prod" about:"command that prints the password, as in --password-command"`
	File         string   `yaml:"password_file" example:"/run/secrets/redis" about:"file with the password, as in --password-file"`
	Sentinels    []string `yaml:"sentinel" example:"[10.0.0.1:26379]" about:"addresses of Sentinels; the url then has no host"`
	Master       string   `yaml:"master" example:"mymaster" about:"name of the master in the configuration of the Sentinels"`
	SentinelUser string   `yaml:"sentinel_user" example:"ann" about:"ACL user at the Sentinels"`
	SentinelPass string   `yaml:"sentinel_pass" example:"secret" about:"password of the Sentinels"`
	SentinelTLS  *bool    `yaml:"sentinel_tls" example:"true" about:"use TLS with the Sentinels; without this key, as the url does"`
	CACert       string   `yaml:"cacert" example:"/etc/locktop/ca.crt" about:"authorities that sign the server's certificate; without this key, those of the system"`
	Cert         string   `yaml:"cert" example:"/etc/locktop/client.crt" about:"certificate of the client"`
	Key          string   `yaml:"key" example:"/etc/locktop/client.key" about:"key of the certificate"`
	SNI          string   `yaml:"sni" example:"redis.internal" about:"name in the server's certificate; without this key, the host of the url"`
	Insecure     bool     `yaml:"insecure" default:"false" about:"do not verify the server's certificate"`
	SSH          string   `yaml:"ssh" example:"ann@bastion" about:"host from which to reach the servers, as in --ssh"`
	Production   bool     `yaml:"production" default:"false" about:"ask for the name of a lock before each action"`
	ReadOnly     bool     `yaml:"readonly" default:"false" about:"refuse --write"`
	AuditLog     string   `yaml:"audit_log" example:"'syslog:'" about:"file for the lines about each action, as in --audit-log"`
	Theme        string   `yaml:"theme" example:"dark" about:"colour theme of the screen, as in --theme"`
	Locks        []string `yaml:"locks" default:"[]" about:"globs of keys that are locks, as in --lock"`
	Overdue      []string `yaml:"overdue" default:"[]" about:"times after which a hold is overdue, as in --overdue"`
	Orders       []string `yaml:"snoozed_orders" default:"[]" about:"orders of locks that are no finding, as the finding lock-order names them: 'cart:* then stock:*'"`
}

// loadContext reads one context from the configuration file.
func loadContext(name string) (Context, error) {
	c, err := ReadConfiguration()
	if err != nil {
		return Context{}, err
	}
	if c.missing {
		return Context{}, usagef("contexts are defined there", "--context: there is no %s", c.path)
	}
	s, ok := c.Contexts[name]
	if !ok {
		hint := "it defines none"
		if len(c.Contexts) > 0 {
			hint = "there are " + strings.Join(definedNames(c.Contexts), ", ")
		}
		return Context{}, usagef(hint, "%s defines no context %q", c.path, name)
	}
	s.Name = name
	if u, err := url.Parse(s.URL); err == nil { // the check below reports another error
		if _, secret := u.User.Password(); (secret || s.SentinelPass != "") && c.readable {
			return s, usagef(chmodHint(c.path), "%s holds a password, and others may read it", c.path)
		}
	}
	return s, c.checkContext(s)
}

func definedNames(contexts map[string]Context) []string { return slices.Sorted(maps.Keys(contexts)) }

// Context reads the context that the flags name, and uses its address. It returns the
// zero Context if the flags name none. Without a flag that says where, LOCKTOP_CONTEXT names it.
func (c *Flags) Context() (Context, error) {
	where := c.addressGiven() || c.given("redlock") || c.given("sentinel")
	if !where {
		c.context = cmp.Or(c.context, os.Getenv("LOCKTOP_CONTEXT"))
	}
	if c.context == "" {
		return Context{}, nil
	}
	if where {
		return Context{}, usagef("", "--context already says where: leave out the flags that do")
	}
	of, err := loadContext(c.context)
	if err != nil {
		return Context{}, err
	}
	c.use(of)
	return of, nil
}

// contextValues are the flags that have the values of a context.
type contextValues struct {
	context string // its name
	flags   []string
}

// has reports whether the context gives the value of a flag.
func (v *contextValues) has(flag string) bool { return slices.Contains(v.flags, flag) }

// origin names flags, or the keys of the context that replace them, for errors.
func (v *contextValues) origin(flags ...string) string {
	if slices.ContainsFunc(flags, v.has) {
		return strings.ReplaceAll(strings.Join(flags, " and "), "-", "_") + " of context " + v.context
	}
	return "--" + strings.Join(flags, " and --")
}

// take sets the value of a flag to that of the context, if it has one and no flag replaces it.
func take[T comparable](v *contextValues, flag string, value *T, own T, replaced bool) {
	if none := *new(T); own != none && !replaced {
		*value = own
		v.flags = append(v.flags, flag)
	}
}

// use takes over the values of a context that no flag gives. A flag with a password replaces those of the context, and one
// with a certificate or a key both.
func (c *Flags) use(of Context) {
	v, s := &c.of, &c.security
	*v, s.of = contextValues{context: of.Name}, contextValues{context: of.Name}
	pass, pair := slices.ContainsFunc(passwordWays, c.given), c.given("cert") || c.given("key")
	take(v, "password-command", &c.command, of.Command, pass)
	take(v, "password-file", &c.file, of.File, pass)
	take(v, "ssh", &c.ssh, of.SSH, c.given("ssh"))
	take(&s.of, "cacert", &s.cacert, of.CACert, c.given("cacert"))
	take(&s.of, "cert", &s.cert, of.Cert, pair)
	take(&s.of, "key", &s.key, of.Key, pair)
	take(&s.of, "sni", &s.sni, of.SNI, c.given("sni"))
	take(&s.of, "insecure", &s.insecure, of.Insecure, c.given("insecure"))
	if len(of.Sentinels) > 0 {
		c.Sentinels = of.Sentinels
		of.URL = cmp.Or(of.URL, "redis://") // not an address of the environment
		take(v, "master", &c.master, of.Master, c.given("master"))
		take(v, "sentinel-user", &c.sentinelUser, of.SentinelUser, c.given("sentinel-user"))
		take(v, "sentinel-pass", &c.sentinelPass, of.SentinelPass, c.given("sentinel-pass"))
		take(v, "sentinel-tls", &c.sentinelTLS, of.SentinelTLS, c.given("sentinel-tls"))
	}
	take(v, "url", &c.url, of.URL, false)
}

// check returns an error for a value that is wrong whatever the flags say, and its key.
func (s Context) check() (key string, err error) {
	of := " of context " + s.Name
	if s.URL != "" {
		if _, err := parseURL("the url"+of, s.URL); err != nil {
			return "url", err
		}
	}
	if s.Command != "" && s.File != "" {
		return "password_file", usagef("", "password_command and password_file%s contradict each other", of)
	}
	for _, f := range []struct{ key, path string }{ // a context means the same file in every directory
		{"password_file", s.File}, {"cacert", s.CACert}, {"cert", s.Cert}, {"key", s.Key},
	} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return f.key, usagef("write it from the root, without ~", "%s%s is not an absolute path", f.key, of)
		}
	}
	if s.SSH != "" {
		if err := checkSSHHost("ssh"+of, s.SSH); err != nil {
			return "ssh", err
		}
	}
	return s.checkSentinels()
}

// checkSentinels returns an error for keys of Sentinels that contradict others, and its key.
func (s Context) checkSentinels() (key string, err error) {
	if len(s.Sentinels) == 0 {
		for _, f := range []struct {
			key string
			set bool
		}{{"master", s.Master != ""}, {"sentinel_user", s.SentinelUser != ""}, {"sentinel_pass", s.SentinelPass != ""}, {"sentinel_tls", s.SentinelTLS != nil}} {
			if f.set {
				return f.key, usagef("like sentinel: [10.0.0.1:26379]", "context %s has options of Sentinels, but no sentinel", s.Name)
			}
		}
		return "", nil
	}
	if u, err := url.Parse(s.URL); err == nil && (u.Host != "" || u.Scheme == "unix") {
		return "url", usagef("its url may have a user, a password, TLS and a database, like rediss://ann@/0",
			"context %s has the address of a server and those of Sentinels", s.Name)
	}
	return "", nil
}
