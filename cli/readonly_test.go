package cli

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// allowed returns the commands that docs/operators.md allows locktop to send,
// as the server spells them: those of the recommended user.
func allowed(t *testing.T, addr string) []string {
	t.Helper()
	var names []string
	for _, word := range advised(t, addr) {
		if name, isCommand := strings.CutPrefix(word.(string), "+"); isCommand {
			names = append(names, name)
		}
	}
	for _, writes := range []string{"eval", "set", "del", "publish"} {
		check.Require(t, !slices.Contains(names, writes), "the list is no list of what only reads: %v", names)
	}
	return names
}

// allowedOfSentinels returns the commands that the page allows locktop to send to a Sentinel.
func allowedOfSentinels(t *testing.T) []string {
	t.Helper()
	for line := range strings.Lines(readText(t, "../docs/operators.md")) {
		if strings.HasPrefix(line, "+") && strings.Contains(line, "+sentinel|") {
			return strings.Split(strings.TrimSpace(line[1:]), " +")
		}
	}
	t.Fatal("it has no list for Sentinels")
	return nil
}

// checkSent checks the commands that the servers were sent since the last call
// of forget. optional are those that the documentation names for some purposes only.
func checkSent(t *testing.T, s topology, optional ...string) {
	t.Helper()
	all := s.sent(t) // before the user is created
	list := append(allowed(t, s.servers[0]), optional...)
	deadline := "pexpiretime"
	if !knows(t, s.servers[0], deadline) {
		deadline = "pttl"
	}
	expected := []string{"scan", "type", deadline, "hscan"}
	if s.moving {
		expected = append(expected, "asking")
	}
	for _, name := range expected {
		check.True(t, slices.Contains(all, name), "%s was never sent: the test proves little: %v", name, all)
	}
	for _, name := range all {
		// Redis 6 does not distinguish subcommands. The refusals to the recommended user show them.
		listed := slices.ContainsFunc(list, func(l string) bool { return l == name || strings.HasPrefix(l, name+"|") })
		check.True(t, name == "config|resetstat" || name == "config" || listed, "%s was sent, and is not on the list", name)
	}
	if len(s.sentinels) == 0 {
		return
	}
	list, all = allowedOfSentinels(t), nil
	for _, sentinel := range s.sentinels {
		all = append(all, sentinel.noted()...)
	}
	check.True(t, slices.Contains(all, "sentinel|get-master-addr-by-name"), "the Sentinels were not asked: the test proves little: %v", all)
	for _, name := range all {
		check.True(t, slices.Contains(list, name), "a Sentinel was sent %s, which is not on the list", name)
	}
}

// looks returns the ways to read, and those that need --write and are refused without it.
func looks(t *testing.T, s topology) [][]string {
	all := [][]string{
		{"list"}, {"list", "--json", "--all"}, {"list", "--csv", "--stuck"}, {"list", "--lock", "some:*"},
		{"list", "-n", "all"}, {"list", "--budget", "full"},
		{"inspect", "lock:a"}, {"inspect", "orders", "--json"}, {"inspect", "nothing-there"},
		{"watch", "--for", "100ms"}, {"watch", "--json", "--for", "100ms"},
		{"doctor", "--for", "100ms"}, {"doctor", "--json", "--for", "100ms"},
		{"record", filepath.Join(t.TempDir(), "r.lockrec"), "--for", "100ms"},
		{"release", "lock:a"}, {"release", "lock:a", "--yes"}, {"release", "orders", "--yes", "--token", token},
		{"release", "lock:a", "--yes", "--give-ttl", "1m"}, {"release", "lock:a", "--dry-run"},
	}
	if len(s.sentinels) > 0 {
		all = append(all, []string{"list", "--prefer-replica"}, []string{"watch", "--prefer-replica", "--for", "100ms"})
	}
	return all
}

// lookAt reads in every way.
func lookAt(t *testing.T, s topology, as ...string) {
	t.Helper()
	for _, args := range looks(t, s) {
		got := locktop(t, slices.Concat(args, s.flags, as)...)
		check.True(t, got.code != exitFailure && got.code != exitNoConnect, "%v ends with %d: %s", args, got.code, got.errors)
	}
}

// checkNothingRefused checks that a server has refused no command.
func checkNothingRefused(t *testing.T, addr string) {
	t.Helper()
	all := check.Must(clientTo(t, addr).ACLLog(t.Context(), 100).Result())(t)
	for _, r := range all {
		t.Errorf("%s has refused %s to %s", addr, r.Object, r.Username)
	}
}

// pressEverything starts the screen and presses every key.
func pressEverything(t *testing.T, s topology) {
	term := openTerminal(t, 120, 35, s.flags...)
	eventually(t, func() bool { return strings.Contains(term.screen(), "lock:a") })
	for _, key := range strings.Split("x Enter y Escape Enter x y Escape d D Delete C-d Escape 2 x Enter Escape 3 Enter Space Escape 4 5 6 7 1 /", " ") {
		term.press(key)
	}
	for _, key := range []string{"Escape", "Down", "Enter", "x", "o", "Escape"} {
		term.press(key)
	}
	term.quit() // the screen handles the last key after all others
}

// Promise P9. Whatever locktop reads, whatever key is pressed, and whatever is requested without --write: servers with
// all permissions, and their Sentinels, receive only commands that the documentation lists, and no command is refused
// to the recommended user.
func TestNothingIsSentThatIsNotOnThePrintedList(t *testing.T) {
	t.Parallel()
	onEachTopology(t, func(t *testing.T, s topology) {
		t.Run("commands", func(t *testing.T) {
			s.forget(t)
			lookAt(t, s)
			checkSent(t, s)
		})
		t.Run("screen", func(t *testing.T) {
			s.forget(t)
			pressEverything(t, s)
			checkSent(t, s, "client|list") // by the page of a lock
		})
		t.Run("advised user", func(t *testing.T) {
			for _, addr := range s.servers {
				advised(t, addr)
			}
			lookAt(t, s, "--user", "locktop", "-a", "c4nary")
			for _, addr := range s.servers {
				checkNothingRefused(t, addr)
			}
		})
		got := s.stranger.Get(t.Context(), "lock:a").Val()
		check.True(t, got == token, "the lock is %q by now", got)
	})
}

// advised creates the user that docs/operators.md recommends, with the first of its lines that the server accepts. Only
// the password is changed. It returns the line.
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
		if err == nil && sent(t, addr, "ACL", "SETUSER", "locktop", "+hpexpiretime").Err() == nil {
			return append(argv, "+hpexpiretime") // the page has it on a line of its own
		} else if err == nil {
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
		if !strings.HasPrefix(line, "ACL SETUSER locktop ") || strings.Contains(line, " +eval ") { // of actions
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

// aUser creates a user with these permissions, as far as the server supports them.
func aUser(t *testing.T, addr, name string, rules ...string) {
	t.Helper()
	check.NoError(t, servertest.SetUser(t.Context(), clientTo(t, addr), name, rules...))
}

// oneOfEachType returns commands that create a lock of each type of key.
func oneOfEachType() [][]any {
	return [][]any{
		{"SET", "lock:a", token, "PX", 600_000},
		{"HSET", "orders", "8743c9c0-0795-4907-87fd-6c719a6b4586:52", 3},
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

// With the recommended permissions no command is refused, and each of them is used.
func TestWithFewerRightsTheRestIsShownAndOneLineSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	aLockOfEachType(t, addr)
	line := advised(t, addr)
	as := asUser(t, "locktop", addr)
	doc, said := listedOn(t, append(as, "--lock", "some:*")...)
	check.True(t, len(doc.Locks) == 5 && said == "", "%d locks; %s", len(doc.Locks), said)
	got := locktop(t, append([]string{"watch", "--for", "2s"}, as...)...)
	check.True(t, got.code == exitFine && got.errors == "", "watch ends with %d, %s", got.code, got.errors)
	locktop(t, "__complete", "who", "-u", "redis://locktop:c4nary@"+addr, "lock:").prints(t, exitFine, "lock:a\tset-nx\n:4")
	checkNothingRefused(t, addr)
	for _, c := range []struct{ without, said string }{
		{"-time -info -dbsize", "this user may not run DBSIZE, INFO, TIME"},
		{"-hrandfield -memory -pexpiretime", ""},
	} {
		if strings.Contains(c.without, "-hrandfield") && !knows(t, addr, "pexpiretime") {
			continue
		}
		aUser(t, addr, "locktop", append(rulesOf(line), strings.Fields(c.without)...)...)
		doc, said := listedOn(t, as...)
		lockNamed(t, doc, "lock:a")
		lockNamed(t, doc, "orders")
		check.True(t, strings.Count(said, "\n") <= 1 && strings.Contains(said, c.said) && (c.said != "" || said == ""),
			"%s: it says %q, want %q", c.without, said, c.said)
	}
}

// asUser returns the flags for a user of a server, with a password that nobody else sees.
func asUser(t *testing.T, user, addr string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	write(t, path, "c4nary")
	return []string{"-u", "redis://" + addr, "--user", user, "--password-file", path}
}

// rulesOf returns the rules of an ACL line.
func rulesOf(line []any) (rules []string) {
	for _, word := range line[3:] {
		rules = append(rules, word.(string))
	}
	return rules
}

// permissionRow is a row of the table of permissions in docs/operators.md.
var permissionRow = regexp.MustCompile("(?m)^\\| ((?:`\\+[^`]+` )+)\\| [^\n]* \\| \\*([^*]+)\\*[^|\n]*\\|$")

// permissions returns what happens without each permission, in the words of docs/operators.md.
func permissions(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, row := range permissionRow.FindAllStringSubmatch(readText(t, "../docs/operators.md"), -1) {
		for _, name := range strings.Fields(strings.NewReplacer("`", "", `\|`, "|").Replace(row[1])) {
			all[name] = row[2]
		}
	}
	return all
}

// The table of permissions has each word of the ACL lines, and says what happens without it. No permission is missing
// without a word: either all locks are listed, or the exit code is 1 and one line names the permission.
func TestTheTableOfPermissionsSaysWhatHappensWithoutEach(t *testing.T) {
	t.Parallel()
	table := permissions(t)
	for _, line := range aclLines(t) {
		for _, rule := range rulesOf(line) {
			optional := slices.Contains([]string{"+client|list", "+monitor"}, rule)
			check.True(t, !strings.HasPrefix(rule, "+") || optional || table[rule] != "", "the table has no %s: %v", rule, table)
		}
	}
	addr := servertest.RedisForTest(t).Addr()
	aLockOfEachType(t, addr)
	line := advised(t, addr)
	seen := func(user string) outcome {
		return locktop(t, append(asUser(t, user, addr), "list", "--json", "--budget", "full", "--lock", "some:*")...)
	}
	all := decoded[render.Document](t, seen("locktop").out)
	check.Require(t, len(all.Locks) == 5 && all.Complete, "all permissions show %d locks", len(all.Locks))
	for i, rule := range rulesOf(line) {
		without := table[rule]
		if without == "" || strings.Contains(without, "cluster") || strings.Contains(without, "6.0") && knows(t, addr, "pexpiretime") {
			continue
		}
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			user := fmt.Sprintf("locktop%d", i)
			aUser(t, addr, user, slices.DeleteFunc(rulesOf(line), func(r string) bool { return r == rule })...)
			got := seen(user)
			name, _, _ := strings.Cut(strings.ToUpper(rule[1:]), "|")
			if without == "error" {
				check.True(t, got.code == exitFailure && got.out == "" && strings.Contains(got.errors, strings.ToLower(name)), "it ends with %d, %s", got.code, got.errors)
				return
			}
			doc := decoded[render.Document](t, got.out)
			incomplete := strings.HasPrefix(without, "incomplete")
			check.True(t, incomplete == (got.code == exitFailure) && incomplete == !doc.Complete && incomplete == (len(doc.Locks) < 5),
				"it ends with %d, complete %v, %d locks", got.code, doc.Complete, len(doc.Locks))
			named := strings.Count(got.errors, "\n") == 1 && strings.Contains(got.errors, "this user may not run "+name)
			check.True(t, named == (incomplete || without == "a warning") && (named || got.errors == ""), "it says %q", got.errors)
			if without == "in doctor" {
				testtier.Long(t, "doctor looks for more than 1 s")
				differs := func(o outcome) bool {
					return strings.Contains(o.out, "may not") || strings.Contains(o.out, "not permitted") || strings.Contains(o.out, "no permission")
				}
				o := locktopFor(t, differs, "doctor", "--json", "-u", "redis://"+user+":c4nary@"+addr)
				check.True(t, differs(o), "doctor says nothing: %s", o.out)
			}
		})
	}
}

// The screen says of each server that it could not ask for the keys of a lock that they are not known.
func TestTheKeysOfAServerThatWasNotReadAreNotKnown(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token)
	aUser(t, addr, "few", "on", ">c4nary", "~*", "&*", "+@all", "-getrange", "-strlen")
	clients := map[string]server.Client{
		"reads": clientTo(t, addr), "down": clientWith(t, "127.0.0.1:1", server.ClientOptions{NoRetry: true}),
		"denies": clientWith(t, addr, server.ClientOptions{Username: "few", Password: "c4nary"}),
	}
	var s selection
	store := s.storedOn(func(addr string, _ int) inspect.Client {
		if rdb, open := clients[addr]; open {
			return rdb
		}
		return nil
	})
	read := func(key string, nodes ...string) (unknown string) {
		l := keyspace.Lock{Key: key}
		for _, n := range nodes {
			l.Votes = append(l.Votes, keyspace.Vote{Node: n})
		}
		for _, e := range store(t.Context(), l) {
			if unknown += e.Node + " "; e.Err == nil {
				unknown += e.Entry.Value + " "
			}
		}
		return unknown
	}
	check.Equal(t, read("lock:a", "reads", "down", "denies", "closed"), "reads "+token+" down denies closed ")
	check.Equal(t, read("lock:b", "reads", "down", "closed"), "down closed ")
}

// A user that may not read keys of one type, or with some names, sees the others. Each output that rests on such keys says so.
func TestWhatThisUserMayNotReadIsNotCalledNone(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token)
	aUser(t, addr, "few", "on", ">c4nary", "~*", "&*", "+@all", "-getrange", "-strlen")
	aUser(t, addr, "other", "on", ">c4nary", "~other:*", "&*", "+@all")
	for user, want := range map[string]string{
		"few":   "may be missing: 1 key of type string cannot be read, because this user may not run GETRANGE",
		"other": "may be missing: 1 key may not be read by this user",
	} {
		for _, args := range [][]string{
			{"list"}, {"list", "--plain"}, {"list", "--csv"}, {"list", "--stuck", "--fail-if-stuck"}, {"inspect", "lock:a"}, {"who", "lock:a"},
			{"watch"}, {"contention", "--for", "100ms"}, {"record", filepath.Join(t.TempDir(), "r.lockrec"), "--for", "1500ms"},
		} {
			expected := want
			if user == "other" && slices.Contains(args, "lock:a") {
				expected = "NOPERM"
			}
			t.Run(user+" "+strings.Join(args[:1], " "), func(t *testing.T) {
				t.Parallel()
				run, said := locktop, func(got outcome) bool { return got.code == exitFailure && strings.Contains(got.errors, expected) }
				if args[0] == "watch" {
					run = func(t *testing.T, args ...string) outcome { return locktopFor(t, said, args...) }
				}
				got := run(t, append(args, "-u", "redis://"+user+":c4nary@"+addr)...)
				check.True(t, said(got), "%q ends with %d, %s", args, got.code, got.errors)
			})
		}
	}
	o := locktop(t, "doctor", "--for", "100ms", "-u", "redis://few:c4nary@"+addr)
	check.True(t, o.code == exitFindings && strings.Contains(o.out, "warning: locks-unread") && !strings.Contains(o.out, "nothing is wrong with them"),
		"doctor ends with %d, %s", o.code, o.out)
	o = locktop(t, "inspect", "other:free", "-u", "redis://other:c4nary@"+addr)
	check.True(t, o.code == exitFailure && strings.Contains(o.errors, "may not be read by this user"), "the queue of a free lock may be hidden: inspect ends with %d, %s", o.code, o.errors)
	term := openTerminal(t, 80, 24, "-u", "redis://few:c4nary@"+addr)
	term.want("≥0 locks  ? waiting", "1 finding", "not all is seen: see Nodes", "no locks are seen; there may be some")
	term.quit()
}

// A lock that is stuck is reported also if other locks could not be read.
func TestAStuckLockIsReportedBesideUnreadKeys(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "lock:a", token)
	send(t, addr, "HSET", "orders", "8743c9c0-0795-4907-87fd-6c719a6b4586:52", 3)
	aUser(t, addr, "some", "on", ">c4nary", "~*", "&*", "+@all", "-hscan", "-hgetall")
	got := locktop(t, "list", "--fail-if-stuck", "-u", "redis://some:c4nary@"+addr)
	check.True(t, got.code == exitFindings && strings.Contains(got.errors, "may not run HSCAN") && strings.Contains(got.errors, "1 lock with findings"),
		"with a stuck lock it ends with %d, %s", got.code, got.errors)
	send(t, addr, "RPUSH", "redisson_lock_queue:{orders}", "a")
	aUser(t, addr, "some", "+hscan", "-lrange")
	for _, args := range [][]string{{"list"}, {"inspect", "orders"}, {"who", "orders", "--for", "100ms"}} {
		got := locktop(t, append(args, "-u", "redis://some:c4nary@"+addr)...)
		check.True(t, got.code == exitFailure && strings.Contains(got.errors, "1 key of type list cannot be read, because this user may not run LRANGE"),
			"with a hidden queue %q ends with %d, %s%s", args, got.code, got.out, got.errors)
	}
}

// connectionState lists the commands that change the state of a connection and
// that locktop may send to any server. Each was checked against Redis 8.0.2 and
// Valkey 8.1.1, where CLIENT NO-TOUCH crashes the server:
//
//   - CLIENT TRACKING only with BCAST and prefixes that do not overlap. The server
//     then records no keys for the connection, and looks up none for it.
//   - CLIENT ID, LIST, SETNAME and SETINFO access no key.
//   - READONLY changes which node serves a key, not how the key is looked up.
//
// locktop never sends CLIENT NO-TOUCH, NO-EVICT, CACHING, REPLY and MONITOR.
var connectionState = []string{"client|id", "client|list", "client|setinfo", "client|setname", "client|tracking", "readonly"}

func TestConnectionsSetNoStateButTheListed(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	aLockOfEachType(t, addr)
	tapped := tapOn(t, addr)
	url := "redis://" + tapped.addr

	for _, args := range [][]string{
		{"list", "--lock", "some:*"}, {"inspect", "lock:a"}, {"doctor", "--for", "100ms"},
		{"watch", "--for", "500ms"}, {"record", filepath.Join(t.TempDir(), "r.lockrec"), "--for", "100ms"},
		{"release", "lock:a", "--write", "--yes"},
	} {
		got := locktop(t, append(args, "-u", url)...)
		check.True(t, got.code == exitFine || got.code == exitFindings, "%v ends with %d: %s", args, got.code, got.errors)
	}
	got := brieflyLoaded(t, "", "--clients", "4", "--kind", "fair", "--demo=false", "-u", url)
	check.True(t, got.code == exitFine, "load ends with %d: %s", got.code, got.errors)
	term := openTerminal(t, 100, 30, "-u", url)
	eventually(t, func() bool {
		return strings.Contains(term.screen(), "orders") && slices.Contains(tapped.noted(), "client|tracking")
	})
	term.quit()

	sent := tapped.noted()
	for _, name := range []string{"client|setname", "client|tracking", "scan"} {
		check.True(t, slices.Contains(sent, name), "%s was never sent: the test proves little", name)
	}
	for _, name := range sent {
		state := strings.HasPrefix(name, "client|") || slices.Contains([]string{"monitor", "readonly", "multi", "watch"}, name)
		check.True(t, !state || slices.Contains(connectionState, name), "%s was sent", name)
	}
}

// The recommended user sees the locks of all formats as a user with all permissions does, with every command that
// reads, and no command is refused. If its key patterns are limited, it sees only the locks that match, and the number
// of the keys that it may not read.
func TestTheAdvisedUserSeesTheLocksOfAllFormats(t *testing.T) {
	testtier.Long(t, "it writes the locks of all formats")
	addr := servertest.RedisForTest(t).Addr()
	rdb := clientTo(t, addr)
	states := loadSamples(t, rdb)
	line := advised(t, addr)
	want := listed(t, addr, "--all")
	t.Setenv("REDISCLI_AUTH", "c4nary")
	as := []string{"--user", "locktop", "-u", "redis://" + addr}

	got := listed(t, addr, "--all", "--user", "locktop")
	for _, s := range states {
		for _, e := range append(s.locks, s.possible...) {
			e.check(t, s.name, got)
		}
	}
	for key := range want {
		seen, all := outline(got[key]), outline(want[key])
		check.True(t, seen == all, "%q is %s, and this user sees %s", key, all, seen)
	}
	check.True(t, len(got) == len(want) && len(want) >= 100, "this user sees %d of %d locks", len(got), len(want))
	for _, key := range slices.Sorted(maps.Keys(want))[:testtier.Size(20, len(want), len(want))] {
		ran := locktop(t, append(append([]string{"inspect", "--all"}, as...), "--", key)...)
		check.True(t, ran.code == exitFine, "inspect %q ends with %d: %s", key, ran.code, ran.errors)
	}
	for _, args := range [][]string{{"watch", "--for", "300ms"}, {"doctor", "--for", "300ms"}} {
		if ran := locktop(t, append(args, as...)...); ran.code == exitFailure || ran.code == exitNoConnect || strings.Contains(ran.errors, "may not") {
			t.Errorf("%s ends with %d: %s", args[0], ran.code, ran.errors)
		}
	}
	checkNothingRefused(t, addr)

	aUser(t, addr, "locktop", append(rulesOf(line), "resetkeys", "%R~lock:*")...)
	doc, said := listedWith(t, exitFailure, "--all", "--user", "locktop", "-u", "redis://"+addr)
	check.True(t, !doc.Complete && strings.Contains(said, "keys may not be read by this user"), "complete %v; it says %s", doc.Complete, said)
	few := make(map[string]bool)
	for _, l := range doc.Locks {
		few[l.Key] = true
	}
	for key := range want {
		check.True(t, strings.HasPrefix(key, "lock:") == few[key], "limited to lock:*, this user sees %q: %v", key, few[key])
	}
	check.True(t, len(few) >= 10, "limited to lock:*, this user sees %d locks: the test proves little", len(few))
}

// outline returns the fields of a listed lock without times.
func outline(lock any) string {
	if lock == nil {
		return "nothing"
	}
	return fmt.Sprint(at(lock, "format"), at(lock, "confidence"), at(lock, "kind"), at(lock, "state"), at(lock, "holders.len"), at(lock, "waiter_count"), at(lock, "fence"))
}
