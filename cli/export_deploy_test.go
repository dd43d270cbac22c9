package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
)

const unitFile = "../contrib/systemd/locktop-export.service"

// Systemd knows all settings of the unit, and its own figure for the exposure of the
// service, of 0 to 10, is at most 1.5.
func TestTheUnitIsHardened(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not on PATH: install systemd to run this test")
	}
	self := check.Must(exec.LookPath("locktop"))(t)
	unit := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	write(t, unit, strings.ReplaceAll(readText(t, unitFile), "/usr/local/bin/locktop", self))
	for _, args := range [][]string{{"verify", "--man=no", unit}, {"security", "--offline=true", "--threshold=15", unit}} {
		out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
		check.True(t, err == nil && (args[0] != "verify" || len(out) == 0), "systemd-analyze %q: %v\n%s", args, err, out)
	}
}

// Files for Kubernetes.
const (
	manifestFile = "../contrib/kubernetes/locktop-export.yaml"
	policyFile   = "../contrib/kubernetes/network-policy.yaml"
	imageFile    = "../contrib/kubernetes/Dockerfile"
)

// objectsOf returns the objects of a manifest, by version and kind.
func objectsOf(t *testing.T, manifest string) map[string]any {
	t.Helper()
	objects := map[string]any{}
	decoder := yaml.NewDecoder(strings.NewReader(manifest))
	for {
		var object any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects[fmt.Sprint(at(object, "apiVersion"), " ", at(object, "kind"))] = object
	}
}

// wantKeys fails the test for a key within an object that is not known. Labels have any keys.
func wantKeys(t *testing.T, object any, known ...string) {
	t.Helper()
	switch node := object.(type) {
	case map[string]any:
		for key, value := range node {
			check.True(t, slices.Contains(known, key), "there is no key %s", key)
			if !strings.HasSuffix(strings.ToLower(key), "labels") {
				wantKeys(t, value, known...)
			}
		}
	case []any:
		for _, value := range node {
			wantKeys(t, value, known...)
		}
	}
}

// podOf returns the pod of the manifest, and the values of the flags of its exporter.
func podOf(t *testing.T) (pod any, flags map[string]string) {
	t.Helper()
	pod = at(objectsOf(t, readText(t, manifestFile))["apps/v1 Deployment"], "spec.template.spec")
	args, _ := at(pod, "containers.0.args").([]any)
	check.Require(t, len(args) != 0 && args[0] == "export", "the pod runs %q", args)
	flags = map[string]string{}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg.(string), "=")
		flags[name] = value
	}
	return pod, flags
}

// The manifest has a pod without rights. Its password, its folder, its ports and its Service
// belong to the flags of the exporter, which exist. The comments are objects, too.
func TestTheManifestStartsTheExporter(t *testing.T) {
	text := readText(t, manifestFile)
	objects := objectsOf(t, text)
	secret, deployment, service := objects["v1 Secret"], objects["apps/v1 Deployment"], objects["v1 Service"]
	pod, flags := podOf(t)
	container := at(pod, "containers.0")
	port := check.Must(strconv.Atoi(strings.TrimPrefix(flags["--web.listen-address"], ":")))(t)
	_, comment, _ := strings.Cut(text, "# With the Prometheus operator:\n# ---\n")
	monitor := objectsOf(t, regexp.MustCompile("(?m)^# ?").ReplaceAllString(comment, ""))["monitoring.coreos.com/v1 PodMonitor"]
	annotation := regexp.MustCompile(`prometheus.io/port: "(\d+)"`).FindStringSubmatch(text)

	const label, name = "app.kubernetes.io/name", "locktop-export"
	for what, want := range map[string]struct{ got, is any }{
		"the kinds":               {len(objects), 3},
		"the label":               {at(deployment, "spec.template.metadata.labels"), map[string]any{label: name}},
		"the selector":            {at(deployment, "spec.selector.matchLabels"), map[string]any{label: name}},
		"selector of the Service": {at(service, "spec.selector"), map[string]any{label: name}},
		"selector of the monitor": {at(monitor, "spec.selector.matchLabels"), map[string]any{label: name}},
		"the number of pods":      {at(deployment, "spec.replicas"), 1},
		"the port":                {at(container, "ports.0"), map[string]any{"name": "metrics", "containerPort": port}},
		"port of the Service":     {at(service, "spec.ports.0.port"), port},
		"its port of the pod":     {at(service, "spec.ports.0.targetPort"), "metrics"},
		"port of the monitor":     {at(monitor, "spec.podMetricsEndpoints.0.port"), "metrics"},
		"port of the annotation":  {annotation, []string{fmt.Sprintf(`prometheus.io/port: "%d"`, port), strconv.Itoa(port)}},
		"one user":                {at(pod, "securityContext.runAsNonRoot"), true},
		"no token":                {at(pod, "automountServiceAccountToken"), false},
		"no new rights":           {at(container, "securityContext.allowPrivilegeEscalation"), false},
		"no writing":              {at(container, "securityContext.readOnlyRootFilesystem"), true},
		"no capability":           {at(container, "securityContext.capabilities.drop"), []any{"ALL"}},
		"the system calls":        {at(pod, "securityContext.seccompProfile.type"), "RuntimeDefault"},
		"the password":            {at(pod, "volumes.0.secret.secretName"), at(secret, "metadata.name")},
		"its file":                {at(container, "volumeMounts.0.mountPath"), filepath.Dir(flags["--password-file"])},
		"its key":                 {at(secret, "stringData."+filepath.Base(flags["--password-file"])), "CHANGE-ME"},
		"the folder":              {at(container, "volumeMounts.1.mountPath"), filepath.Dir(flags["--record"])},
		"its size":                {at(pod, "volumes.1.emptyDir.sizeLimit"), "512Mi"},
		"the limit of its size":   {flags["--keep-size"], "400MiB"},
	} {
		check.True(t, reflect.DeepEqual(want.got, want.is), "%s is %v, want %v", what, want.got, want.is)
	}
	for name, value := range flags {
		check.ErrorIs(t, existsInLocktop("locktop export "+name+"="+value), nil)
	}

	image := readText(t, imageFile) // it has the program of the manifest, and its user
	program, _ := at(pod, "containers.0.command.0").(string)
	user := fmt.Sprintf("USER %v:%v\n", at(pod, "securityContext.runAsUser"), at(pod, "securityContext.runAsGroup"))
	for _, want := range []string{"COPY locktop " + program + "\n", fmt.Sprintf("ENTRYPOINT [%q]\n", program), user} {
		check.True(t, program != "" && strings.Contains(image, "\n"+want), "the image does not have %q", want)
	}
}

// The NetworkPolicy is for the pod of the manifest. It lets Prometheus in at the port of the
// metrics, and the exporter out to the server of its flags and to DNS; nothing else.
func TestTheNetworkPolicyFitsTheManifest(t *testing.T) {
	spec := at(objectsOf(t, readText(t, policyFile))["networking.k8s.io/v1 NetworkPolicy"], "spec")
	wantKeys(t, spec, "podSelector", "namespaceSelector", "matchLabels", "policyTypes", "ingress", "egress", "from", "to", "ports", "port", "protocol")
	pod, flags := podOf(t)
	redis := check.Must(url.Parse(flags["-u"]))(t)
	port := check.Must(strconv.Atoi(redis.Port()))(t)
	manifest := objectsOf(t, readText(t, manifestFile))["apps/v1 Deployment"]
	ports := func(pairs ...any) (all []any) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, map[string]any{"protocol": pairs[i], "port": pairs[i+1]})
		}
		return all
	}
	for path, want := range map[string]any{
		"policyTypes": []any{"Ingress", "Egress"}, "podSelector.matchLabels": at(manifest, "spec.template.metadata.labels"),
		"ingress.len": 1, "ingress.0.ports": ports("TCP", at(pod, "containers.0.ports.0.name")),
		"egress.len": 2, "egress.0.ports": ports("TCP", port), "egress.1.ports": ports("UDP", 53, "TCP", 53),
		"ingress.0.from.len": 1, "egress.0.to.len": 1, "egress.1.to.len": 1,
	} {
		got := at(spec, path)
		check.True(t, reflect.DeepEqual(got, want), "%s is %v, want %v", path, got, want)
	}
	for _, path := range []string{"ingress.0.from.0", "egress.0.to.0", "egress.1.to.0"} {
		check.True(t, at(spec, path+".namespaceSelector") != nil || at(spec, path+".podSelector") != nil,
			"%s is %v", path, at(spec, path)) // an empty peer would be everybody
	}
	check.True(t, at(spec, "ingress.0.from.0.namespaceSelector") != nil, "it is not restricted to the namespace of Prometheus")
}

// The exporter of the manifest reads its server with the password in the file. Its probes pass
// with and without --web.config.file: the kubelet has no user and no client certificate.
func TestTheProbesOfTheManifestPass(t *testing.T) {
	t.Parallel()
	pod, flags := podOf(t)
	redis := servertest.RedisForTest(t)
	user, _, _ := strings.Cut(strings.TrimPrefix(flags["-u"], "redis://"), "@")
	aUser(t, redis.Addr(), user, "on", ">CHANGE-ME", "~*", "&*", "+@all")
	ca := check.NewAuthority(t)
	cert, key := ca.Issue(t, "server", leaf())
	dir := t.TempDir()
	password, config := filepath.Join(dir, "password"), filepath.Join(dir, "web.yml")
	write(t, password, "CHANGE-ME")
	write(t, config, fmt.Sprintf("tls_server_config: {cert_file: %q, key_file: %q, client_auth_type: RequireAndVerifyClientCert, client_ca_file: %q}\n"+
		"basic_auth_users: {prometheus: $2y$10$0000000000000000000000000000000000000000000000000000u}\n", cert, key, ca.File))
	for _, further := range [][]string{nil, {"--web.config.file", config}} {
		args := slices.Clone(further)
		for name, value := range flags {
			switch name {
			case "-u":
				value = "redis://" + user + "@" + redis.Addr()
			case "--password-file":
				value = password
			case "--record":
				value = t.TempDir()
			case "--web.listen-address":
				continue // a free one
			}
			args = append(args, name+"="+value)
		}
		e := startExport(t, args...)
		if further == nil {
			e.sees(`locktop_up\{.*\} 1`)
		}
		exporter := check.Must(url.Parse(e.base))(t)
		for _, name := range []string{"livenessProbe", "readinessProbe"} {
			check.True(t, at(pod, "containers.0."+name+".tcpSocket.port") == "metrics", "%s is %v", name, at(pod, "containers.0."+name))
			eventually(t, func() bool {
				c, err := net.Dial("tcp", exporter.Host)
				return err == nil && c.Close() == nil
			})
		}
	}
}

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
// section of the runbook, a row on the page of the exporter, and a test. The alert of a
// finding has the name of its ID.
func TestEachAlertSaysWhatToDo(t *testing.T) {
	page, tests, anchors := readText(t, exportPage), readText(t, ruleTests), anchorsOf(t, runbook)
	var sections []string
	for _, a := range alerts(t) {
		s := a.Labels["severity"]
		check.True(t, s == "critical" || s == "warning", "%s has the severity %q", a.Alert, s)
		check.True(t, a.Annotations["summary"] != "", "%s has no summary", a.Alert)
		meaning, command, _ := strings.Cut(a.Annotations["description"], " Run: locktop ")
		check.True(t, meaning != "" && command != "", "%s does not end with a command: %q", a.Alert, a.Annotations["description"])
		ofLocks := !slices.Contains([]string{"LocktopPassStale", "LocktopIncomplete", "LocktopRecordingStopped", "LocktopDown", "LocktopLockOrder"}, a.Alert)
		explains := strings.Contains(meaning, "locktop explain DIRECTORY says what happened")
		check.True(t, explains == ofLocks, "%s names explain: %v", a.Alert, explains)
		anchor, found := strings.CutPrefix(a.Annotations["runbook_url"], "docs/stuck-lock.md#")
		check.True(t, found && anchor == strings.ToLower(a.Alert) && slices.Contains(anchors, anchor),
			"%s has the runbook %s; the sections are %q", a.Alert, a.Annotations["runbook_url"], anchors)
		sections = append(sections, anchor)
		if id, one := strings.CutPrefix(a.Expr, `locktop_findings{finding="`); one {
			named := func(p keyspace.Problem) bool {
				return strings.HasPrefix(id, p.ID+`"`) && anchor == "locktop"+strings.ReplaceAll(p.ID, "-", "")
			}
			check.True(t, slices.ContainsFunc(keyspace.FindingProblems(), named), "%s has not the name of a finding: %s", a.Alert, a.Expr)
		}
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
	long(t, "it starts a cluster and Sentinels")
	for _, a := range alerts(t) {
		const flags = ` {{ . | first | label "flags" }}{{ end }}`
		run := a.Annotations["description"]
		run = run[strings.LastIndex(run, "Run: locktop"):]
		check.True(t, strings.HasSuffix(run, flags) || strings.HasPrefix(run, "Run: locktop replay"),
			"the command of %s has no flags of its target: %s", a.Alert, run)
	}
	single := servertest.RedisForTest(t, "--requirepass", "c4nary")
	cluster := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	sentinels := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{})
	nodes := servertest.IndependentForTest(t, 3)
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
