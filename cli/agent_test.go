package cli

import (
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
)

// The Job in docs/load.md is one that Kubernetes reads, and starts an agent for one run.
func TestTheJobInTheDocsStartsAgents(t *testing.T) {
	page := readText(t, "../docs/load.md")
	_, block, _ := strings.Cut(page, "```yaml\napiVersion")
	block, _, _ = strings.Cut("apiVersion"+block, "```")
	job := objectsOf(t, block)["batch/v1 Job"]
	wantKeys(t, job, "apiVersion", "kind", "metadata", "name", "spec", "completionMode", "completions", "parallelism", "backoffLimit",
		"template", "restartPolicy", "containers", "image", "args")
	for path, want := range map[string]any{
		"spec.completionMode": "Indexed", "spec.parallelism": at(job, "spec.completions"), "spec.backoffLimit": 0,
		"spec.template.spec.restartPolicy": "Never", "spec.template.spec.containers.len": 1,
	} {
		got := at(job, path)
		check.True(t, got == want, "%s is %v, want %v", path, got, want)
	}
	n, _ := at(job, "spec.completions").(int)
	check.True(t, n >= 2 && at(job, "metadata.name") != nil && at(job, "spec.template.spec.containers.0.image") != nil, "%v", job)
	var args []string
	for _, word := range at(job, "spec.template.spec.containers.0.args").([]any) {
		args = append(args, word.(string))
	}
	check.True(t, slices.Contains(args, "--once"), "the Job does not end after one run: %v", args)
	locktop(t, append(args, "--help")...).says(t, exitFine)
}

func TestAgentsNeedSettingsThatGoTogether(t *testing.T) {
	for args, want := range map[string]string{
		"agent": "an agent needs --control",
		"agent --control redis://127.0.0.1:1 -u redis://127.0.0.1:1": "unknown flag -u",
		"load --agents 2":                                                             "--agents needs --control",
		"load --control redis://127.0.0.1:1":                                          "--control needs --agents",
		"load --control redis://127.0.0.1:1 --agents 2000":                            "1 to 1000",
		"load --control redis://127.0.0.1:1 --agents 2 --demo":                        "--demo and --control contradict each other",
		"load --control redis://127.0.0.1:1 --agents 2 --check":                       "--check sees one process only",
		"load --control redis://127.0.0.1:1 --agents 2 --events e":                    "the events stay with the agents",
		"load --control redis://127.0.0.1:1 --agents 2 --sentinel 127.0.0.1:1":        "agents do not ask Sentinels",
		"load --control redis://127.0.0.1:1 --agents 2 --witness redis://127.0.0.1:1": "the control server is the witness",
	} {
		locktop(t, strings.Fields(args)...).fails(t, exitUsage, want)
	}
}
