package house

import (
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"locktop/internal/check"
)

// The workflows are YAML, call only targets of the Makefile that exist, and wait for no
// job for longer than an hour.
func TestWorkflowsCallTargetsThatExist(t *testing.T) {
	makefile := check.Must(os.ReadFile("Makefile"))(t)
	files, err := filepath.Glob(".github/workflows/*.yml")
	check.Require(t, err == nil && len(files) == 2, "workflows: %v, %v; want ci and release", files, err)
	targets := 0
	for _, file := range files {
		text := check.Must(os.ReadFile(file))(t)
		var workflow struct {
			Jobs map[string]struct {
				Timeout int `yaml:"timeout-minutes"`
				Steps   []struct{ Uses, Run string }
			}
		}
		check.NoError(t, yaml.Unmarshal(text, &workflow), "%s", file)
		for name, job := range workflow.Jobs {
			check.True(t, job.Timeout != 0 && job.Timeout <= 60, "%s: job %s has a timeout of %d minutes", file, name, job.Timeout)
			for _, step := range job.Steps {
				target, ok := strings.CutPrefix(step.Run, "make ")
				if !ok {
					continue
				}
				targets++
				check.True(t, regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`: `).Match(makefile),
					"%s calls make %s, which the Makefile has not", file, target)
			}
		}
	}
	check.True(t, targets >= 2, "the workflows call %d targets of the Makefile; want ci and dist", targets)
}

// All scripts that a target of the Makefile or the run of CI calls exist.
func TestScriptsThatAreCalledExist(t *testing.T) {
	for _, caller := range []string{"Makefile", ".ci/run", ".ci/packaged"} {
		text := check.Must(os.ReadFile(caller))(t)
		scripts := regexp.MustCompile(`(?m)(?:^|[ \t])(\.ci/[a-z]+)`).FindAllSubmatch(text, -1)
		check.True(t, len(scripts) != 0, "%s calls no script", caller)
		for _, script := range scripts {
			_, err := os.Stat("" + string(script[1]))
			check.True(t, err == nil, "%s calls %s: %v", caller, script[1], err)
		}
	}
}

// The tests read files by their names from the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		log.Fatal(err)
	}
	m.Run()
}
