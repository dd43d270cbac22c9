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
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Context is one context of the configuration file. Flags override its values.
type Context struct {
	Name         string   `yaml:"-"`
	URL          string   `yaml:"url"`              // in the syntax of --url
	Command      string   `yaml:"password_command"` // in the syntax of --password-command
	File         string   `yaml:"password_file"`
	Sentinels    []string `yaml:"sentinel"` // addresses; the URL then has no host
	Master       string   `yaml:"master"`
	SentinelUser string   `yaml:"sentinel_user"`
	SentinelPass string   `yaml:"sentinel_pass"`
	SentinelTLS  optional `yaml:"sentinel_tls"`
	CACert       string   `yaml:"cacert"` // this and the next four as the flags of the same name
	Cert         string   `yaml:"cert"`
	Key          string   `yaml:"key"`
	SNI          string   `yaml:"sni"`
	Insecure     bool     `yaml:"insecure"`
	SSH          string   `yaml:"ssh"`        // in the syntax of --ssh
	Production   bool     `yaml:"production"` // the user must type the name of a lock before each action
	ReadOnly     bool     `yaml:"readonly"`   // refuse --write
	AuditLog     string   `yaml:"audit_log"`  // in the syntax of --audit-log
	Theme        string   `yaml:"theme"`
	Locks        []string `yaml:"locks"`   // globs in the syntax of --lock
	Overdue      []string `yaml:"overdue"` // limits in the syntax of --overdue
}

// configPath returns the path of the configuration file, which may not exist.
func configPath() (string, error) {
	dir, err := os.UserConfigDir() // XDG_CONFIG_HOME, or the directory of the system
	if err != nil {
		return "", fmt.Errorf("find the configuration: %w", err)
	}
	return filepath.Join(dir, "locktop", "config.yaml"), nil
}

// loadContext reads one context from the configuration file.
func loadContext(name string) (Context, error) {
	path, err := configPath()
	if err != nil {
		return Context{}, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Context{}, usagef("contexts are defined there", "--context: there is no %s", path)
	}
	if err != nil {
		return Context{}, usagef("", "read the configuration: %w", err)
	}
	defer file.Close()
	contexts, err := readContexts(file)
	if err != nil {
		return Context{}, usagef("", "%s: %w", path, err)
	}
	s, ok := contexts[name]
	if !ok {
		return Context{}, usagef(definedContexts(contexts), "%s defines no context %q", path, name)
	}
	return s, checkPrivate(file, s)
}

// readContexts parses a configuration file. Its errors are one line. They give the
// line number in the file and quote nothing of the file except keys.
func readContexts(r io.Reader) (map[string]Context, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return nil, err
	}
	var config struct {
		Contexts map[string]Context `yaml:"contexts"`
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&config); err != nil && !errors.Is(err, io.EOF) {
		return nil, configError(err)
	}
	return config.Contexts, nil
}

// maxConfig is the largest configuration in bytes that readContexts reads.
const maxConfig = 1 << 20

var (
	unknownKey = regexp.MustCompile(`line (\d+): field (\S+) not found`)
	anyLine    = regexp.MustCompile(`line \d+`)
)

// configError rewrites an error of the YAML parser so that it quotes no values,
// because a value may be a password.
func configError(err error) error {
	said := err.Error()
	if m := unknownKey.FindStringSubmatch(said); m != nil {
		return fmt.Errorf("line %s: there is no key %q; there are url, password_command, password_file, sentinel, master, sentinel_user, sentinel_pass, sentinel_tls, cacert, cert, key, sni, insecure, ssh, production, readonly, audit_log, theme, locks, overdue, and above them contexts", m[1], m[2])
	}
	if line := anyLine.FindString(said); line != "" {
		return fmt.Errorf("%s: unexpected value", line)
	}
	return errors.New("it is not YAML")
}

func definedContexts(contexts map[string]Context) string {
	if len(contexts) == 0 {
		return "it defines none"
	}
	return "there are " + strings.Join(slices.Sorted(maps.Keys(contexts)), ", ")
}

// checkPrivate returns an error if users other than the owner can change file, which says
// where the password is sent, or if s has a password and they can read file.
func checkPrivate(file *os.File, s Context) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if os.PathSeparator != '/' {
		return nil
	}
	if othersCanChange(info) {
		return usagef(chmodHint(file.Name()), "%s says where to connect, and others may change it", file.Name())
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil // the parser of the address reports this error
	}
	if _, secret := u.User.Password(); (secret || s.SentinelPass != "") && info.Mode().Perm()&0o077 != 0 {
		return usagef(chmodHint(file.Name()), "%s holds a password, and others may read it", file.Name())
	}
	return nil
}

// Context reads the context that the flags name, and uses its address. It returns the
// zero Context if the flags name none.
func (c *Flags) Context() (Context, error) {
	if c.context == "" {
		return Context{}, nil
	}
	if c.addressGiven() || c.given("redlock") || c.given("sentinel") {
		return Context{}, usagef("", "--context already says where: leave out the flags that do")
	}
	of, err := loadContext(c.context)
	if err != nil {
		return Context{}, err
	}
	c.contextURL, c.contextRead, of.Name = of.URL, true, c.context
	c.contextCommand, c.contextFile = of.Command, of.File
	c.contextSSH = of.SSH
	c.security.use(of, c.given)
	if err := of.checkPaths(); err != nil {
		return of, err
	}
	return of, c.useSentinels(of)
}

// checkPaths returns an error for a relative path: a context means the same file in every
// directory.
func (s Context) checkPaths() error {
	for _, f := range []struct{ key, path string }{
		{"password_file", s.File}, {"cacert", s.CACert}, {"cert", s.Cert}, {"key", s.Key},
	} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return usagef("write it from the root, without ~", "%s of context %s is not an absolute path", f.key, s.Name)
		}
	}
	return nil
}

// useSentinels takes over the Sentinels of a context. Flags override their credentials.
func (c *Flags) useSentinels(of Context) error {
	if len(of.Sentinels) == 0 {
		if of.Master != "" || of.SentinelUser != "" || of.SentinelPass != "" || of.SentinelTLS.set {
			return usagef("like sentinel: [10.0.0.1:26379]", "context %s has options of Sentinels, but no sentinel", of.Name)
		}
		return nil
	}
	if u, err := url.Parse(of.URL); err == nil && (u.Host != "" || u.Scheme == "unix") {
		return usagef("its url may have a user, a password, TLS and a database, like rediss://ann@/0",
			"context %s has the address of a server and those of Sentinels", of.Name)
	}
	c.sentinels = of.Sentinels
	c.contextURL = cmp.Or(of.URL, "redis://") // not an address of the environment
	if of.Master != "" && !c.given("master") {
		c.master = of.Master
	}
	if !c.given("sentinel-user") {
		c.sentinelUser = of.SentinelUser
	}
	if !c.given("sentinel-pass") {
		c.sentinelPass = of.SentinelPass
	}
	if !c.given("sentinel-tls") {
		c.sentinelTLS = of.SentinelTLS
	}
	return nil
}
