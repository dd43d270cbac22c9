package connect

import (
	"cmp"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

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
	SentinelTLS  optional `yaml:"sentinel_tls" example:"true" about:"use TLS with the Sentinels; without this key, as the url does"`
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
		}{{"master", s.Master != ""}, {"sentinel_user", s.SentinelUser != ""}, {"sentinel_pass", s.SentinelPass != ""}, {"sentinel_tls", s.SentinelTLS.set}} {
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
