package cli

import (
	"os/exec"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
)

// advised creates the user that docs/operators.md recommends, with the first of
// its lines that the server accepts. Only the password is changed. It returns
// the line.
func advised(t *testing.T, addr string) []any {
	t.Helper()
	var refused []error
	for _, argv := range aclLines(t) {
		if strings.HasPrefix(argv[3].(string), "+") {
			continue
		}
		for i, word := range argv {
			argv[i] = strings.Replace(word.(string), "CHANGE-ME", "c4nary", 1)
		}
		err := sent(t, addr, argv...).Err()
		if err == nil {
			return argv
		}
		refused = append(refused, err)
	}
	t.Fatalf("there is no line for this server: %v", refused)
	return nil
}

// aclLines returns the words of the ACL lines of docs/operators.md, as a shell splits them
// behind redis-cli. The prompt of redis-cli has the same rule for double quotes.
func aclLines(t *testing.T) (all [][]any) {
	t.Helper()
	for line := range strings.Lines(readText(t, "../docs/operators.md")) {
		if !strings.HasPrefix(line, "ACL SETUSER locktop ") {
			continue
		}
		out := check.Must(exec.Command("sh", "-c", `printf '%s\n' `+line).Output())(t)
		var argv []any
		for _, word := range strings.Fields(string(out)) {
			argv = append(argv, word)
		}
		plain := strings.Fields(strings.ReplaceAll(line, `"`, ""))
		check.Require(t, len(argv) == len(plain) && argv[len(argv)-1] == plain[len(plain)-1], "a shell takes %q for %q", line, argv)
		all = append(all, argv)
	}
	return all
}

// knows reports whether a server has a command.
func knows(t *testing.T, addr, command string) bool {
	t.Helper()
	info := check.Must(sent(t, addr, "COMMAND", "INFO", command).Slice())(t)
	return len(info) == 1 && info[0] != nil
}

// aUser creates a user with these permissions, as far as the server supports
// them.
func aUser(t *testing.T, addr, name string, rules ...string) {
	t.Helper()
	check.NoError(t, server.SetUser(t.Context(), clientTo(t, addr), name, rules...))
}

// oneOfEachType returns commands that create a lock of each type of key.
func oneOfEachType() [][]any {
	return [][]any{
		{"SET", "lock:a", token, "PX", 600_000},
		{"HSET", "orders", "8743c9c0-0795-4907-87fd-6c719a6b4586:52", 3},
		{"PEXPIRE", "orders", 600_000},
		{"ZADD", "some:zset", 1, "a"},
		{"SADD", "some:set", "a"},
		{"RPUSH", "some:list", "a"},
		{"XADD", "some:stream", "*", "a", "b"},
	}
}

// aLockOfEachType creates a lock of each type of key on a server.
func aLockOfEachType(t *testing.T, addr string) {
	t.Helper()
	for _, argv := range oneOfEachType() {
		send(t, addr, argv...)
	}
}

func TestTheAdvisedRightsAreEnough(t *testing.T) {
	t.Parallel()
	addr := server.ForTest(t).Addr()
	aLockOfEachType(t, addr)
	advised(t, addr)
	as := []string{"-u", "redis://locktop:c4nary@" + addr}
	doc, said := listedOn(t, append(as, "--lock", "some:*")...)
	check.True(t, len(doc.Locks) == 5 && said == "", "%d locks; %s", len(doc.Locks), said)
	got := locktop(t, append([]string{"watch", "--for", "500ms"}, as...)...)
	check.True(t, got.code == exitFine && got.errors == "", "watch ends with %d, %s", got.code, got.errors)
	checkNothingRefused(t, addr)
}

func TestWithFewerRightsTheRestIsShownAndOneLineSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	addr := server.ForTest(t).Addr()
	aLockOfEachType(t, addr)
	line := advised(t, addr)
	for _, c := range []struct{ without, said string }{
		{"-time", "this user may not run TIME"},
		{"-info", "this user may not run INFO"},
		{"-dbsize", "this user may not run DBSIZE"},
		{"-hrandfield", ""},
		{"-pubsub", "this user may not run PUBSUB"},
		{"-hscan", "this user may not run HSCAN"},
		{"-time -info -dbsize", "this user may not run DBSIZE, INFO, TIME"},
		{"resetkeys %R~lock:*", "this user may not read 5 of the keys"},
	} {
		if c.without == "-hrandfield" && !knows(t, addr, "hrandfield") {
			continue
		}
		var rules []string
		for _, word := range line[3:] {
			rules = append(rules, word.(string))
		}
		aUser(t, addr, "locktop", append(rules, strings.Fields(c.without)...)...)
		doc, said := listedOn(t, "-u", "redis://locktop:c4nary@"+addr)
		lockNamed(t, doc, "lock:a")
		check.True(t, strings.Count(said, "\n") <= 1 && strings.Contains(said, c.said) && (c.said != "" || said == ""),
			"%s: it says %q, want %q", c.without, said, c.said)
		if hidden := strings.Contains(c.without, "hscan") || strings.Contains(c.without, "resetkeys"); !hidden {
			lockNamed(t, doc, "orders")
		}
	}
}

// A user with only the read category is common.
func TestAUserWithReadAndScanSeesTheLocks(t *testing.T) {
	t.Parallel()
	addr := server.ForTest(t).Addr()
	aLockOfEachType(t, addr)
	aUser(t, addr, "reader", "on", ">c4nary", "~*", "-@all", "+@read", "+scan")
	doc, said := listedOn(t, "-u", "redis://reader:c4nary@"+addr)
	check.True(t, len(doc.Locks) == 2 && doc.Complete, "%+v", doc)
	check.True(t, strings.Count(said, "\n") == 1 && strings.Contains(said, "this user may not run INFO, PUBSUB"),
		"it says %q", said) // on Redis 6, TIME, too, is in the read category
}
