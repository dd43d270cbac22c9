package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// contextConfig is one context of the configuration file. Flags override its
// values.
type contextConfig struct {
	URL        string   `yaml:"url"`        // in the syntax of --url
	Production bool     `yaml:"production"` // the user must type the name of a lock before each action
	ReadOnly   bool     `yaml:"readonly"`   // refuse --write
	Theme      string   `yaml:"theme"`
	Locks      []string `yaml:"locks"`   // globs in the syntax of --lock
	Overdue    []string `yaml:"overdue"` // limits in the syntax of --overdue
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
func loadContext(name string) (contextConfig, error) {
	path, err := configPath()
	if err != nil {
		return contextConfig{}, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return contextConfig{}, usageErrorf("contexts are defined there", "--context: there is no %s", path)
	}
	if err != nil {
		return contextConfig{}, usageErrorf("", "read the configuration: %w", err)
	}
	defer file.Close()
	contexts, err := readContexts(file)
	if err != nil {
		return contextConfig{}, usageErrorf("", "%s: %w", path, err)
	}
	s, ok := contexts[name]
	if !ok {
		return contextConfig{}, usageErrorf(definedAre(contexts), "%s defines no context %q", path, name)
	}
	return s, private(file, s)
}

// readContexts parses a configuration file. Its errors are one line. They give the
// line number in the file and quote nothing of the file except keys.
func readContexts(r io.Reader) (map[string]contextConfig, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return nil, err
	}
	var config struct {
		Contexts map[string]contextConfig `yaml:"contexts"`
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&config); err != nil && !errors.Is(err, io.EOF) {
		return nil, plainYAML(err)
	}
	return config.Contexts, nil
}

// maxConfig is the largest configuration in bytes that readContexts reads.
const maxConfig = 1 << 20

var (
	unknownKey = regexp.MustCompile(`line (\d+): field (\S+) not found`)
	anyLine    = regexp.MustCompile(`line \d+`)
)

// plainYAML rewrites an error of the YAML parser so that it quotes no values,
// because a value may be a password.
func plainYAML(err error) error {
	said := err.Error()
	if m := unknownKey.FindStringSubmatch(said); m != nil {
		return fmt.Errorf("line %s: there is no key %q; there are url, production, readonly, theme, locks, overdue, and above them contexts", m[1], m[2])
	}
	if line := anyLine.FindString(said); line != "" {
		return fmt.Errorf("%s: this is not what belongs there", line)
	}
	return errors.New("it is not YAML")
}

func definedAre(contexts map[string]contextConfig) string {
	var names []string
	for name := range contexts {
		names = append(names, name)
	}
	if len(names) == 0 {
		return "it defines none"
	}
	slices.Sort(names)
	return "there are " + strings.Join(names, ", ")
}

// private returns an error if s has a password and users other than the owner can
// read file.
func private(file *os.File, s contextConfig) error {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil // the parser of the address reports this error
	}
	if _, secret := u.User.Password(); !secret {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		return usageErrorf(onlyMine(file.Name()), "%s holds a password, and others may read it", file.Name())
	}
	return nil
}

// configure applies the context, if one is named. Its theme applies only without
// a flag; its locks and limits add to those of the flags.
func (c *connFlags) configure(s *selection, look *screenFlags, may *writeFlags) error {
	if c.context == "" {
		return nil
	}
	if c.given("url") || c.given("host") || c.given("port") || c.given("socket") || len(c.redlock)+len(c.sentinels) > 0 {
		return usageErrorf("", "--context already says where: leave out the flags that do")
	}
	of, err := loadContext(c.context)
	if err != nil {
		return err
	}
	c.contextURL = of.URL
	s.lock = append(s.lock, of.Locks...)
	for _, text := range of.Overdue {
		if err := s.limits.Set(text); err != nil {
			return usageErrorf("", "overdue of context %s: one of them is %w", c.context, err)
		}
	}
	if look != nil && look.theme == "" {
		look.theme = of.Theme
	}
	if may == nil {
		return nil
	}
	if may.write && of.ReadOnly {
		return usageErrorf("", "the context %s is read-only: --write is refused", c.context)
	}
	may.production = may.production || of.Production
	return nil
}
