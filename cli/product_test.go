package cli

import (
	"strings"
	"testing"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
)

func TestAServerHasTheNameOfItsProduct(t *testing.T) {
	addr := server.ForTest(t).Addr()
	rdb := clientTo(t, addr)
	name, version := "redis", ""
	for line := range strings.Lines(rdb.Info(t.Context(), "server").Val()) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key {
		case "valkey_version":
			name, version = "valkey", value
		case "redis_version":
			version = value
		}
	}
	doc, _ := listedOn(t, "-u", "redis://"+addr)
	check.True(t, doc.Server == (render.Server{Mode: "standalone", Version: version, Name: name}), "%s %s is %+v", name, version, doc.Server)
	product := map[string]string{"redis": "Redis ", "valkey": "Valkey "}[name] + version
	got := locktop(t, "doctor", "--for", "100ms", "-u", "redis://"+addr)
	check.True(t, strings.Contains(got.out, addr+": "+product+", master"), "doctor does not name %s:\n%s", product, got.out)
}

// Its deadlines then use the local clock.
func TestAServerWithoutTheTimeIsLookedAt(t *testing.T) {
	t.Parallel()
	addr := server.ForTest(t, "--rename-command", "TIME", "other-name").Addr()
	aLockOfEachType(t, addr)
	doc, said := listedOn(t, "-u", "redis://"+addr)
	l := lockNamed(t, doc, "lock:a")
	check.True(t, l.TTLms >= 500_000 && l.TTLms <= 600_000, "it has %d ms left", l.TTLms)
	check.True(t, strings.Count(said, "\n") == 1 && strings.Contains(said, "the server does not have TIME"), "it says %q", said)
	shown := func(got outcome) bool { return got.code == exitFine && strings.Contains(got.out, "lock:a") }
	got := locktopFor(t, shown, "watch", "-u", "redis://"+addr)
	check.True(t, shown(got), "watch ends with %d: %s%s", got.code, got.out, got.errors)
}

// Without CLIENT and INFO, a permission would not help, and risks are not known.
func TestAServerWithoutClientAndInfoIsNotJudged(t *testing.T) {
	addr := server.ForTest(t, "--rename-command", "CLIENT", "other-client", "--rename-command", "INFO", "other-info").Addr()
	send(t, addr, "SET", "lock:a", token, "PX", "600000")
	if got := locktop(t, "who", "lock:a", "-u", "redis://"+addr); !strings.Contains(got.errors, "the server does not have CLIENT LIST") || strings.Contains(got.errors, "+client") {
		t.Errorf("who: %s%s", got.out, got.errors)
	}
	if got := locktop(t, "doctor", "--for", "1ms", "-u", "redis://"+addr); !strings.Contains(got.out, "risks for the server are not known") || strings.Contains(got.out, "no server-wide risks") {
		t.Errorf("doctor: %s%s", got.out, got.errors)
	}
}
