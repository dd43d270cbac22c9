package cli

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// The alerts, and the pages that describe them.
const (
	rulesFile  = "../contrib/prometheus/locktop.rules.yml"
	ruleTests  = "../contrib/prometheus/locktop.rules.test.yml"
	runbook    = "../docs/stuck-lock.md"
	exportPage = "../docs/export.md"
)

// requirePrometheus is the environment variable that makes tests fail, instead of skip, if
// prometheus or promtool is missing. CI sets it.
const requirePrometheus = "LOCKTOP_REQUIRE_PROMETHEUS"

// needPrometheus skips the test if a program of Prometheus is missing.
func needPrometheus(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	check.Require(t, os.Getenv(requirePrometheus) == "", "%s is not on PATH", program)
	t.Skipf("%s is not on PATH: run `bash .ci/prometheus DIR` and put DIR on PATH to run this test", program)
}

// alert is an alert of the rules.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `yaml:"name"`
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(readText(t, rulesFile)))
	decoder.KnownFields(true)
	err := decoder.Decode(&file)
	check.Require(t, err == nil && len(file.Groups) == 1, "%s has %d groups: %v", rulesFile, len(file.Groups), err)
	return file.Groups[0].Rules
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text := check.Must(os.ReadFile(name))(t)
	return string(text)
}

// Each alert has a severity, a sentence that ends with the first command to run, a
// section of the runbook, a row on the page of the exporter, and a test.
func TestEachAlertSaysWhatToDo(t *testing.T) {
	page, tests, anchors := readText(t, exportPage), readText(t, ruleTests), anchorsOf(t, runbook)
	var sections []string
	for _, a := range alerts(t) {
		s := a.Labels["severity"]
		check.True(t, s == "critical" || s == "warning", "%s has the severity %q", a.Alert, s)
		check.True(t, a.Annotations["summary"] != "", "%s has no summary", a.Alert)
		meaning, command, _ := strings.Cut(a.Annotations["description"], " Run: locktop ")
		check.True(t, meaning != "" && command != "", "%s does not end with a command: %q", a.Alert, a.Annotations["description"])
		ofLocks := !slices.Contains([]string{"LocktopPassStale", "LocktopRecordingStopped", "LocktopDown"}, a.Alert)
		explains := strings.Contains(meaning, "locktop explain DIRECTORY tells what happened")
		check.True(t, explains == ofLocks, "%s names explain: %v", a.Alert, explains)
		anchor, found := strings.CutPrefix(a.Annotations["runbook_url"], "docs/stuck-lock.md#")
		check.True(t, found && anchor == strings.ToLower(a.Alert) && slices.Contains(anchors, anchor),
			"%s has the runbook %s; the sections are %q", a.Alert, a.Annotations["runbook_url"], anchors)
		sections = append(sections, anchor)
		check.True(t, strings.Contains(page, "[`"+a.Alert+"`](stuck-lock.md#"+anchor+")"), "%s does not list %s", exportPage, a.Alert)
		if !strings.Contains(tests, `alertname="`+a.Alert+`",alertstate="firing"`) && !strings.Contains(tests, "alertname: "+a.Alert+"\n") {
			t.Errorf("%s does not raise %s", ruleTests, a.Alert)
		}
	}
	for _, anchor := range anchors {
		check.True(t, !strings.HasPrefix(anchor, "locktop") || slices.Contains(sections, anchor), "no alert belongs to the section %s", anchor)
	}
}

// anchorsOf returns the anchors of the headings of a page, as GitHub and GitLab make them.
func anchorsOf(t *testing.T, page string) (all []string) {
	t.Helper()
	for line := range strings.Lines(readText(t, page)) {
		marks, title, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found || strings.Trim(marks, "#") != "" {
			continue
		}
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, title))
	}
	return all
}

func TestTheLinksOfTheRunbookLeadSomewhere(t *testing.T) {
	for _, page := range []string{runbook, exportPage} {
		for _, link := range regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(readText(t, page), -1) {
			if strings.HasPrefix(link[1], "https:") {
				continue
			}
			name, anchor, _ := strings.Cut(link[1], "#")
			to := page
			if name != "" {
				to = filepath.Join(filepath.Dir(page), name)
			}
			anchors := anchorsOf(t, to)
			check.True(t, anchor == "" || slices.Contains(anchors, anchor), "%s links to %s: there is no such section", page, link[1])
		}
	}
}

// flagsOf returns the flags that an alert shows for the n-th target of an export.
func (e *exported) flagsOf(target string) string {
	e.t.Helper()
	line := regexp.MustCompile(`(?m)^locktop_target_info\{target="` + target + `",flags=("(?:[^"\\]|\\.)*")\} 1$`).FindStringSubmatch(e.page())
	if line == nil {
		e.t.Fatalf("no locktop_target_info of %s in\n%s", target, e.page())
	}
	flags := check.Must(strconv.Unquote(line[1]))(e.t)
	return flags
}

// A shell runs the command of an alert as it is written, for targets of all kinds, and the
// command reads the same servers. The flags have no password.
func TestTheCommandOfAnAlertReadsItsTarget(t *testing.T) {
	testtier.Long(t, "it starts a cluster and Sentinels")
	t.Parallel()
	for _, a := range alerts(t) {
		const flags = ` {{ . | first | label "flags" }}{{ end }}`
		run := a.Annotations["description"]
		run = run[strings.LastIndex(run, "Run: locktop"):]
		check.True(t, strings.HasSuffix(run, flags) || strings.HasPrefix(run, "Run: locktop replay"),
			"the command of %s has no flags of its target: %s", a.Alert, run)
	}
	single := server.ForTest(t, "--requirepass", "c4nary")
	cluster := server.ClusterForTest(t, server.ClusterOptions{})
	sentinels := server.SentinelGroupForTest(t, server.SentinelOptions{})
	nodes := server.IndependentForTest(t, 3)
	config := t.TempDir()
	configureIn(t, config, 0o600, "contexts:", "  it's prod:", "    url: redis://:c4nary@"+single.Addr()+"/2")
	password := filepath.Join(config, "password")
	write(t, password, "c4nary")

	for name, tt := range map[string]struct {
		args    []string
		target  string
		servers int
	}{
		"a password in a file": {[]string{"-u", "redis://" + single.Addr() + "/1", "--password-file", password}, "redis://" + single.Addr() + "/1", 1},
		"a password in a URL":  {[]string{"-u", "redis://default:c4nary@" + single.Addr(), "-n", "all"}, "redis://" + single.Addr(), 1},
		"a context":            {[]string{"--context", "it's prod"}, "it's prod", 1},
		"a cluster":            {[]string{"-u", "redis://" + cluster.Addrs()[0], "--cluster"}, "cluster at redis://" + cluster.Addrs()[0], 3},
		"Sentinels":            {sentinelFlags(sentinels), "master .*", 1},
		"a Redlock":            {redlockFlags(nodes), "redlock of .*", 3},
	} {
		t.Run(name, func(t *testing.T) {
			env := append(os.Environ(), "XDG_CONFIG_HOME="+config)
			e := startExportIn(t, env, tt.args...)
			flags := e.flagsOf(tt.target)
			cmd := exec.Command("sh", "-c", "locktop list --json "+flags)
			cmd.Env, cmd.Stdin = env, strings.NewReader("c4nary\n")
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			var doc render.Document
			if err := errors.Join(err, json.Unmarshal(out, &doc)); err != nil || len(doc.Nodes) != tt.servers || strings.Contains(flags, "c4nary") {
				t.Errorf("locktop list --json %s: %d servers, want %d; %v\n%s", flags, len(doc.Nodes), tt.servers, err, &errs)
			}
		})
	}
}

// Each alert fires in its failure, and none in a clean hour.
func TestTheRulesPassPromtool(t *testing.T) {
	t.Parallel()
	needPrometheus(t, "promtool")
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", ruleTests}} {
		out, err := exec.Command("promtool", args...).CombinedOutput()
		check.True(t, err == nil, "promtool %q: %v\n%s", args, err, out)
	}
}
