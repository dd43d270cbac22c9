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
