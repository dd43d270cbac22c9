package cli

// docWay is how the test runs a command of the docs.
type docWay int

const (
	ends     docWay = iota // by itself
	stopped                // by SIGINT, after it has printed what the rule says
	serves                 // until the last command of its block has ended; then by SIGINT
	onScreen               // in a terminal, until Ctrl-C
	asked                  // in a terminal; by itself after an answer
)

// docRule says what a command of the docs does. The lock lock:orders:4711 is held on each
// server, and the lock orders:4712 has the finding never-expires.
type docRule struct {
	command string // an expression for the command as written, without its comment; the first rule that matches counts
	way     docWay
	prints  string // an expression for a line of its output
	code    int
	seed    docSeed
	copies  int      // number of processes, 1 if 0
	asks    string   // with onScreen and asked: an expression for the question
	answer  []string // the keys of the answer
	makes   string   // a file that then has a line like prints
	knows   string   // a command that the server must have
	needs   string   // a program, or linux
}

// docSeed is how lock:orders:4711 is held.
type docSeed int

const (
	byToken  docSeed = iota // by a random token, for a minute
	byName                  // by the name of a connected client
	renewed                 // by a random token that its holder renews 5 times a second
	noTTL                   // by a random token, without a deadline
	restless                // by a random token; the lock lock:stolen changes hands, and others expire
	onNodes                 // by a random token on one of three servers of a Redlock
	whatever                // not at all; the command reads no lock
)

const docLock = `lock:orders:4711`

var docRules = []docRule{
	// the screen
	{command: `^(go run \.|locktop) demo$`, way: onScreen, prints: `HELD|TTL`, code: exitInterrupted, seed: whatever},
	{command: `--load --control`, way: onScreen, asks: "m shows ", answer: []string{"m", "a"}, prints: `waiting for 4 agents`, code: exitInterrupted, seed: whatever},
	{command: `--sentinel-user ann`, way: onScreen, prints: docLock, code: exitInterrupted, knows: "getex"}, // Sentinels have users since Redis 6.2
	{command: `^(\./)?locktop (-|$)`, way: onScreen, prints: docLock, code: exitInterrupted},
	{command: `^(\./)?locktop explain (KEY|lock:\S+) .*--at `, prints: `^A client deleted lock:orders:4711 at 03:12:00`, seed: whatever},
	{command: `^(\./)?locktop explain --at `, prints: `^1 incident from `, seed: whatever},
	{command: `^locktop replay (.* --at .*|DIRECTORY)$`, way: onScreen, prints: `lock:a\b`, code: exitInterrupted, seed: whatever},

	{command: `^redis-cli -u redis://`, prints: `^OK`, seed: whatever, needs: "redis-cli"},

	// commands that read
	{command: `^\./locktop list --stuck --fail-if-stuck$`, prints: `never-expires`, code: exitFindings},
	{command: `^locktop list --stuck --redlock`, prints: docLock + `.*minority`, seed: onNodes},
	{command: `^locktop list --stuck$`, prints: `never-expires`},
	{command: `^locktop list `, prints: docLock},
	{command: `^(\./)?locktop inspect `, prints: `^` + docLock},
	{command: `^(\./)?locktop who .*--monitor$`, prints: `proof`, seed: renewed},
	{command: `^(\./)?locktop who `, prints: `orders-worker`, seed: byName},
	{command: `^(\./)?locktop contention`, way: stopped, prints: `watching the locks`, code: exitInterrupted},
	{command: `^locktop doctor$`, prints: `never-expires`, code: exitFindings},
	{command: `^\./locktop watch --json$`, way: stopped, prints: `"event":"appeared","key":"` + docLock, code: exitInterrupted},
	{command: `^locktop watch --plain$`, way: stopped, prints: `appeared ` + docLock, code: exitInterrupted},
	{command: `^locktop watch --events expired --plain$`, way: stopped, prints: `expired `, code: exitInterrupted, seed: restless},
	{command: `^locktop watch --events finding$`, way: stopped, prints: `finding \S+, (warning|critical): `, code: exitInterrupted},
	{command: `^locktop watch --events stolen,deleted --plain$`, way: stopped, prints: `stolen lock:stolen`, code: exitInterrupted, seed: restless},

	// commands that write
	{command: `^locktop release .*--dry-run$`, prints: `^redis-cli .*EVAL`},
	{command: `^locktop release .*--write$`, way: asked, asks: "Type y to confirm", answer: []string{"y", "Enter"}, prints: `^lock:orders:4711 is released`},
	{command: `^locktop release .*--give-ttl 30s$`, way: asked, asks: "Type y to confirm", answer: []string{"y", "Enter"}, prints: `^lock:orders:4711 expires in 30 s`, seed: noTTL},

	// the exporter
	{command: `^(\./)?locktop export -u redis://127.0.0.1:6379$`, way: serves, prints: `serving http`},
	{command: `^curl `, prints: `^locktop_findings\{.*finding="never-expires".* 1$`, needs: "curl"},
	{command: `^/usr/local/bin/locktop export .*-u[ =]redis://\S+ .*--record[ =]`, way: stopped, prints: `serving http`, code: exitInterrupted},
	{command: `^/usr/local/bin/locktop export -u rediss://`, way: stopped, prints: `serving http`, code: exitInterrupted},
	{command: `^locktop export `, way: stopped, prints: `serving http`, code: exitInterrupted},
	{command: `^zcat `, prints: `"kind":"acquired"`, seed: whatever, needs: "jq"},
	{command: `^sed -i`, makes: "locktop.rules.yml", prints: `runbook_url: https://git.example/locktop/docs/stuck-lock.md#`, seed: whatever},
	{command: `^install .*locktop-export.service`, makes: "etc/systemd/system/locktop-export.service", prints: `^ExecStart=`, seed: whatever},
	{command: `^install -m 755 locktop`, seed: whatever},
	{command: `^printf 'CHANGE-ME' \| install`, makes: "etc/locktop/redis-password", prints: `^CHANGE-ME$`, seed: whatever, needs: "linux"},
	{command: `^df `, prints: `%`, seed: whatever},

	// the load
	{command: `^(\./)?locktop agent --control redis://ctl:6379 --allow`, way: serves, prints: `waiting for work`, seed: whatever, copies: 4},
	{command: `^\./locktop agent `, way: stopped, prints: `waiting for work`, code: exitInterrupted, seed: whatever},
	{command: `^for host in `, prints: `(?s)(waiting for work.*){4}`, seed: whatever},
	{command: `^locktop scenarios --from .* > night.yaml$`, makes: "night.yaml", prints: `^rate: `, seed: whatever},
	{command: `^locktop load --suite `, way: stopped, prints: `^locktop: [a-z-]+: (run 1 of \d+: )?(pass|fail|not judged)`, code: exitInterrupted, seed: whatever},
	{command: `^locktop load .* --agents 4 `, way: stopped, prints: `^locktop: agent \d of 4: `, code: exitInterrupted, seed: whatever}, // then all four are there
	{command: `^locktop load .* --json > `, way: stopped, prints: `"note":".* [1-9]\d* holding`, code: exitInterrupted, seed: whatever},
	{command: `^(\./)?locktop load `, way: stopped, prints: `^locktop: .* [1-9]\d* holding`, code: exitInterrupted, seed: whatever},
}

// docRuleFor returns the rule for a command, or nil.
func docRuleFor(command string) *docRule {
	for i, r := range docRules {
		if compiled(r.command).MatchString(bare(command)) {
			return &docRules[i]
		}
	}
	return nil
}
