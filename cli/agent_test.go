package cli

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The Job in docs/load.md is one that Kubernetes reads, and starts an agent for one run.
func TestTheJobInTheDocsStartsAgents(t *testing.T) {
	page := readText(t, "../docs/load.md")
	_, block, _ := strings.Cut(page, "```yaml\napiVersion")
	block, _, _ = strings.Cut("apiVersion"+block, "```")
	var job struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
		Metadata   struct {
			Name string `yaml:"name"`
		} `yaml:"metadata"`
		Spec struct {
			CompletionMode string `yaml:"completionMode"`
			Completions    int    `yaml:"completions"`
			Parallelism    int    `yaml:"parallelism"`
			BackoffLimit   *int   `yaml:"backoffLimit"`
			Template       struct {
				Spec struct {
					RestartPolicy string `yaml:"restartPolicy"`
					Containers    []struct {
						Name  string   `yaml:"name"`
						Image string   `yaml:"image"`
						Args  []string `yaml:"args"`
					} `yaml:"containers"`
				} `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(block))
	decoder.KnownFields(true)
	if err := decoder.Decode(&job); err != nil {
		t.Fatalf("%v in\n%s", err, block)
	}
	s := job.Spec
	if job.APIVersion != "batch/v1" || job.Kind != "Job" || job.Metadata.Name == "" || s.CompletionMode != "Indexed" ||
		s.Completions < 2 || s.Parallelism != s.Completions || s.Template.Spec.RestartPolicy != "Never" || len(s.Template.Spec.Containers) != 1 {
		t.Errorf("%+v", job)
	}
	args := s.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--once") {
		t.Errorf("the Job does not end after one run: %v", args)
	}
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
