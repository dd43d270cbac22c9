package connect

import (
	"errors"
	"strings"
	"testing"
)

// parsed returns the connection that args describe.
func parsed(t *testing.T, args ...string) *Flags {
	t.Helper()
	var c Flags
	if err := c.FlagSet().Parse(args); err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestFlagsAndEnvironmentSayWhereToConnect(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  map[string]string
		want endpoint
	}{
		"nothing said": {
			want: endpoint{network: "tcp", addr: "127.0.0.1:6379"},
		},
		"names that redis-cli users know": {
			args: []string{"-H", "redis.test", "-p", "6380", "-n", "3", "--user", "ann", "-a", "pw"},
			want: endpoint{network: "tcp", addr: "redis.test:6380", user: "ann", pass: "pw", db: 3},
		},
		"an IPv6 address": {
			args: []string{"-H", "::1"},
			want: endpoint{network: "tcp", addr: "[::1]:6379"},
		},
		"a whole URL": {
			args: []string{"-u", "redis://ann:p%40ss@redis.test:6380/7"},
			want: endpoint{network: "tcp", addr: "redis.test:6380", user: "ann", pass: "p@ss", db: 7},
		},
		"a URL with nothing but the scheme": {
			args: []string{"-u", "redis://"},
			want: endpoint{network: "tcp", addr: "127.0.0.1:6379"},
		},
		"TLS by scheme": {
			args: []string{"-u", "rediss://redis.test"},
			want: endpoint{network: "tcp", addr: "redis.test:6379", tls: true},
		},
		"TLS by flag": {
			args: []string{"-u", "redis://redis.test", "--tls"},
			want: endpoint{network: "tcp", addr: "redis.test:6379", tls: true},
		},
		"a socket by flag": {
			args: []string{"-s", "/run/redis.sock"},
			want: endpoint{network: "unix", addr: "/run/redis.sock"},
		},
		"a socket by URL": {
			args: []string{"-u", "unix://ann:pw@/run/redis.sock?db=2"},
			want: endpoint{network: "unix", addr: "/run/redis.sock", user: "ann", pass: "pw", db: 2},
		},
		"flags over the URL": {
			args: []string{"-u", "redis://ann:pw@redis.test/1", "-n", "0", "--user", "bob", "-a", "other"},
			want: endpoint{network: "tcp", addr: "redis.test:6379", user: "bob", pass: "other"},
		},
		"LOCKTOP_URL over REDIS_URL": {
			env:  map[string]string{"LOCKTOP_URL": "redis://mine.test", "REDIS_URL": "redis://other.test"},
			want: endpoint{network: "tcp", addr: "mine.test:6379"},
		},
		"REDIS_URL": {
			env:  map[string]string{"REDIS_URL": "redis://:pw@other.test"},
			want: endpoint{network: "tcp", addr: "other.test:6379", pass: "pw"},
		},
		"a password from the environment": {
			env:  map[string]string{"REDISCLI_AUTH": "pw"},
			args: []string{"-H", "redis.test"},
			want: endpoint{network: "tcp", addr: "redis.test:6379", pass: "pw"},
		},
		"the URL's own password over the environment's": {
			env:  map[string]string{"REDISCLI_AUTH": "other"},
			args: []string{"-u", "redis://:pw@redis.test"},
			want: endpoint{network: "tcp", addr: "redis.test:6379", pass: "pw"},
		},
		"an address in the flags drops the one in the environment, password and all": {
			env:  map[string]string{"LOCKTOP_URL": "rediss://ann:pw@prod.test/4"},
			args: []string{"-p", "6380"},
			want: endpoint{network: "tcp", addr: "127.0.0.1:6380"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			got, err := parsed(t, tt.args...).resolve()
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
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
			e, err := parsed(t, args...).resolve()
			if f, ok := errors.AsType[*Error](err); !ok || !f.Usage {
				t.Errorf("got %+v and error %v, want a fault of usage", e, err)
			}
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
			_, err := parsed(t).resolve()
			if err == nil {
				t.Fatal("accepted")
			}
			if said := err.Error() + err.(*Error).Hint; strings.Contains(said, canary) {
				t.Errorf("the error gives the password away: %s", said)
			}
			if len(raw) > 0 && !strings.Contains(err.Error(), "LOCKTOP_URL") && !strings.Contains(err.Error(), "no password") {
				t.Errorf("the error does not say what it is about: %v", err)
			}
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
		if got := tt.endpoint.String(); got != tt.string {
			t.Errorf("String() = %q, want %q", got, tt.string)
		}
		if got := tt.endpoint.title(); got != tt.title {
			t.Errorf("title() = %q, want %q", got, tt.title)
		}
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
		seeds, err := parsed(t, "--redlock", raw).seeds()
		if err != nil || seeds[0].addr != want {
			t.Errorf("--redlock %s is %v with error %v, want %s", raw, seeds, err, want)
		}
		if raw == "::1" || raw == "[::1]" {
			if got := parsed(t, "--sentinel", raw).sentinelAddresses()[0]; got != "[::1]:26379" {
				t.Errorf("--sentinel %s is %s", raw, got)
			}
		}
	}
	for _, raw := range []string{"c4nary@redis-1", "redis:c4nary", "redis-1/c4nary", "redis-1:c4nary", "c4nary:x:1"} {
		_, err := parsed(t, "--redlock", raw).seeds()
		if f, ok := errors.AsType[*Error](err); !ok || !f.Usage || strings.Contains(err.Error(), "c4nary") {
			t.Errorf("--redlock %s: %v", raw, err)
		}
	}
}
