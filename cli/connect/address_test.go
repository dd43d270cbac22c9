package connect

import (
	"errors"
	"strings"
	"testing"

	"locktop/internal/check"
)

// parsed returns the connection that args describe.
func parsed(t *testing.T, args ...string) *Flags {
	t.Helper()
	var c Flags
	check.NoError(t, c.FlagSet().Parse(args))
	return &c
}

func TestFlagsAndEnvironmentSayWhereToConnect(t *testing.T) {
	for _, tt := range []struct {
		name, args, env string
		want            endpoint
	}{
		{"nothing said", "", "", endpoint{network: "tcp", addr: "127.0.0.1:6379"}},
		{"names that redis-cli users know", "-H redis.test -p 6380 -n 3 --user ann -a pw", "", endpoint{network: "tcp", addr: "redis.test:6380", user: "ann", pass: "pw", db: 3}},
		{"an IPv6 address", "-H ::1", "", endpoint{network: "tcp", addr: "[::1]:6379"}},
		{"a whole URL", "-u redis://ann:p%40ss@redis.test:6380/7", "", endpoint{network: "tcp", addr: "redis.test:6380", user: "ann", pass: "p@ss", db: 7}},
		{"a URL with nothing but the scheme", "-u redis://", "", endpoint{network: "tcp", addr: "127.0.0.1:6379"}},
		{"TLS by scheme", "-u rediss://redis.test", "", endpoint{network: "tcp", addr: "redis.test:6379", tls: true}},
		{"TLS by flag", "-u redis://redis.test --tls", "", endpoint{network: "tcp", addr: "redis.test:6379", tls: true}},
		{"a socket by flag", "-s /run/redis.sock", "", endpoint{network: "unix", addr: "/run/redis.sock"}},
		{"a socket by URL", "-u unix://ann:pw@/run/redis.sock?db=2", "", endpoint{network: "unix", addr: "/run/redis.sock", user: "ann", pass: "pw", db: 2}},
		{"flags over the URL", "-u redis://ann:pw@redis.test/1 -n 0 --user bob -a other", "", endpoint{network: "tcp", addr: "redis.test:6379", user: "bob", pass: "other"}},
		{"LOCKTOP_URL over REDIS_URL", "", "LOCKTOP_URL=redis://mine.test REDIS_URL=redis://other.test", endpoint{network: "tcp", addr: "mine.test:6379"}},
		{"REDIS_URL", "", "REDIS_URL=redis://:pw@other.test", endpoint{network: "tcp", addr: "other.test:6379", pass: "pw"}},
		{"a password from the environment", "-H redis.test", "REDISCLI_AUTH=pw", endpoint{network: "tcp", addr: "redis.test:6379", pass: "pw"}},
		{"the URL's own password over the environment's", "-u redis://:pw@redis.test", "REDISCLI_AUTH=other", endpoint{network: "tcp", addr: "redis.test:6379", pass: "pw"}},
		{"an address in the flags drops the one in the environment, password and all", "-p 6380", "LOCKTOP_URL=rediss://ann:pw@prod.test/4", endpoint{network: "tcp", addr: "127.0.0.1:6380"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, variable := range strings.Fields(tt.env) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			got, err := parsed(t, strings.Fields(tt.args)...).endpoint()
			check.True(t, err == nil && got == tt.want, "got  %+v, %v\nwant %+v", got, err, tt.want)
		})
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-u", "redis://redis.test", "-H", "other.test"},
		{"-u", "redis://redis.test", "-p", "1"},
		{"-u", "redis://redis.test", "-s", "/run/redis.sock"},
		{"-s", "/run/redis.sock", "-H", "other.test"},
		{"-n", "-1"},
		{"-a", ""},
		{"--user", "ann"}, // Redis would continue as the default user
		{"-u", "redis://ann@redis.test"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			e, err := parsed(t, args...).endpoint()
			f, ok := errors.AsType[*Error](err)
			check.True(t, ok && f.Usage, "got %+v and error %v, want a fault of usage", e, err)
		})
	}
}

func TestMalformedURLsKeepTheirSecrets(t *testing.T) {
	const canary = "c4nary"
	for _, raw := range []string{
		"redis://ann:c4nary@host:99999x/0",
		"redis://ann:c4nary@ho st/0",
		"redis://ann:c4nary%zz@host/0",
		"redis://ann:c4nary@[::1/0",
		"redis://ann:c4nary@host/zero",
		"redis://ann:c4nary@host/-1",
		"redis://ann:c4nary@host?password=c4nary",
		"redis://ann:c4nary@host?db=1&c4nary",
		"redis://ann:c4nary@host?db=c4nary",
		"redis://ann:c4nary@host?%zzc4nary",
		"redis://ann:1?c4nary@host",
		"redis://ann:1#c4nary@host",
		"redis://ann:1/c4nary@host",
		"redis://ann:c4nary/x@host",
		"redis://ann:c4nary\x1b@host",
		"redis://c4nary@host",
		"redis:c4nary@host",
		"c4nary@host:6379",
		"c4nary://host",
		":c4nary@host",
		"unix://c4nary",
		"unix://ann:c4nary@",
		"unix://ann:c4nary@host/run/redis.sock",
		"http://ann:c4nary@host/",
	} {
		t.Run(raw, func(t *testing.T) {
			t.Setenv("LOCKTOP_URL", raw)
			_, err := parsed(t).endpoint()
			check.Require(t, err != nil, "accepted")
			said := err.Error() + err.(*Error).Hint
			check.False(t, strings.Contains(said, canary), "the error gives the password away: %s", said)
			check.True(t, len(raw) == 0 || strings.Contains(err.Error(), "LOCKTOP_URL") || strings.Contains(err.Error(), "no password"),
				"the error does not say what it is about: %v", err)
		})
	}
}

func TestAnEndpointNamesItselfWithoutCredentials(t *testing.T) {
	tests := []struct {
		endpoint      endpoint
		string, title string
		local         bool
	}{
		{endpoint{network: "tcp", addr: "10.0.0.5:6379", user: "ann", pass: "pw", db: 2}, "redis://10.0.0.5:6379", "redis://10.0.0.5:6379/2", false},
		{endpoint{network: "tcp", addr: "[::1]:6379", tls: true}, "rediss://[::1]:6379", "rediss://[::1]:6379/0", true},
		{endpoint{network: "tcp", addr: "localhost:6379"}, "redis://localhost:6379", "redis://localhost:6379/0", true},
		{endpoint{network: "tcp", addr: "localhost.evil.test:6379"}, "redis://localhost.evil.test:6379", "redis://localhost.evil.test:6379/0", false},
		{endpoint{network: "unix", addr: "/run/redis.sock", pass: "pw"}, "unix:///run/redis.sock", "unix:///run/redis.sock?db=0", true},
	}
	for _, tt := range tests {
		got := tt.endpoint.String()
		check.True(t, got == tt.string, "String() = %q, want %q", got, tt.string)
		got = tt.endpoint.title()
		check.True(t, got == tt.title, "title() = %q, want %q", got, tt.title)
		if got := tt.endpoint.local(); got != tt.local {
			t.Errorf("%s: local() = %v, want %v", tt.endpoint, got, tt.local)
		}
	}
}

func TestARedlockServerIsAURLOrAHost(t *testing.T) {
	for raw, want := range map[string]string{
		"redis-1":                "redis-1:6379",
		"redis-1:7000":           "redis-1:7000",
		"redis:7000":             "redis:7000",
		"10.0.0.5":               "10.0.0.5:6379",
		"[::1]:7000":             "[::1]:7000",
		"::1":                    "[::1]:6379",
		"[::1]":                  "[::1]:6379",
		"redis://redis-1":        "redis-1:6379",
		"rediss://redis-1:1/3":   "redis-1:1",
		"unix:///run/redis.sock": "/run/redis.sock",
	} {
		r, err := parsed(t, "--redlock", raw).Resolve()
		check.True(t, err == nil && r.seeds[0].addr == want, "--redlock %s is %v with error %v, want %s", raw, r, err, want)
		if raw == "::1" || raw == "[::1]" {
			check.Equal(t, check.Must(parsed(t, "--sentinel", raw).Resolve())(t).sentinels[0].addr, "[::1]:26379", "--sentinel %s", raw)
		}
	}
	for _, raw := range []string{"c4nary@redis-1", "redis:c4nary", "redis-1/c4nary", "redis-1:c4nary", "c4nary:x:1"} {
		_, err := parsed(t, "--redlock", raw).Resolve()
		f, ok := errors.AsType[*Error](err)
		check.True(t, ok && f.Usage && !strings.Contains(err.Error(), "c4nary"), "--redlock %s: %v", raw, err)
	}
}

const canary = "c4nary"

// checkRefusal checks that an error is one line and does not repeat what may be a password.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	check.False(t, strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }), "%q is no line for people", err)
	check.False(t, strings.Contains(err.Error(), canary), "%q repeats the password", err)
}

// Whatever surrounds a password in an address, the password is either parsed, or the address is refused without
// repeating it. An address that is shown never contains it.
func FuzzURL(f *testing.F) {
	for _, around := range [][2]string{
		{"redis://ann:", "@localhost:6379/3"}, {"rediss://:", "@h"}, {"unix://u:", "@/tmp/r.sock?db=2"}, {"redis://u:", "@[::1]:1/0?db=1"},
		{"redis://user:", "@host:99999x/0"}, {"redis://a:", "@ b"}, {"redis://%zz", "@"}, {"http://x:", "@y"}, {"", ""}, {"\x00", "\n"},
		{"redis://h/-1?p=", ""}, {"redis:", ""}, {"redis://h#", ""}, {"redis://", ""}, {"redis://h/", ""}, {"redis://h?db=", ""},
	} {
		f.Add(around[0], around[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		e, err := parseURL("--url", before+canary+after)
		checkRefusal(t, err)
		if err != nil {
			return
		}
		check.True(t, e.addr != "" && e.db >= 0 && (e.network == "tcp" || e.network == "unix"), "%q is %+v", before+canary+after, e)
		check.True(t, !strings.Contains(e.pass, canary) || strings.Contains(e.addr, canary) || !strings.Contains(e.String()+e.title(), canary),
			"it is shown with its password: %s", e)
	})
}

func TestALargeConfigurationIsRefusedAndNotCut(t *testing.T) {
	_, err := ParseConfiguration("config.yaml", strings.NewReader(strings.Repeat("# a comment\n", 1<<17)))
	check.True(t, err != nil && strings.Contains(err.Error(), "config.yaml has more than 1 MiB"), "the error is %v", err)
}

// Any file is either a configuration, or refused without repeating one of its values, which may be a password.
func FuzzConfig(f *testing.F) {
	for _, around := range [][2]string{
		{"contexts:\n  prod: {url: 'redis://:", "@h', production: true, readonly: true, theme: dark, locks: ['a*']}\n"},
		{"contexts: [", "]"}, {"contexts:\n  a: &x {url: 1}\n  b: *x\n#", ""}, {"contexts:\n  a: {production: ", "}"}, {"a: b: ", ""}, {"\t", ""},
		{"%YAML 9", ""}, {"contexts: {a: {locks: ", "}}"}, {"contexts: {a: {url: !!int ", "}}"}, {"- ", ""}, {"&a *", ""},
	} {
		f.Add(around[0], around[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + canary + after
		_, err := ParseConfiguration("config.yaml", strings.NewReader(text))
		// The name of an unknown key may be repeated: it helps, and is not a value.
		if err == nil || !strings.Contains(err.Error(), "there is no key") {
			checkRefusal(t, err)
		}
	})
}
