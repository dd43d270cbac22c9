package cli

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	unitFile     = "../contrib/systemd/locktop-export.service"
	manifestFile = "../contrib/kubernetes/locktop-export.yaml"
)

// Systemd knows all settings of the unit, and its own figure for the exposure of the
// service, of 0 to 10, is at most 1.5.
func TestTheUnitIsHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not on PATH: install systemd to run this test")
	}
	self, err := exec.LookPath("locktop")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), filepath.Base(unitFile))
	write(t, unit, strings.ReplaceAll(readText(t, unitFile), "/usr/local/bin/locktop", self))
	for _, args := range [][]string{{"verify", "--man=no", unit}, {"security", "--offline=true", "--threshold=15", unit}} {
		if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %q: %v\n%s", args, err, out)
		}
	}
}

// The manifest has a pod without rights that starts the exporter. Its probes, its password, its
// folder and its Service belong to the flags of the exporter.
func TestTheManifestStartsTheExporter(t *testing.T) {
	objects := map[string]any{}
	decoder := yaml.NewDecoder(strings.NewReader(readText(t, manifestFile)))
	for {
		var object any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		objects[fmt.Sprint(at(object, "apiVersion"), " ", at(object, "kind"))] = object
	}
	secret, deployment, service := objects["v1 Secret"], objects["apps/v1 Deployment"], objects["v1 Service"]
	pod := at(deployment, "spec.template.spec")
	container := at(pod, "containers.0")
	const label, name = "app.kubernetes.io/name", "locktop-export"
	for what, want := range map[string]struct{ got, is any }{
		"the kinds":               {len(objects), 3},
		"the label":               {at(deployment, "spec.template.metadata.labels"), map[string]any{label: name}},
		"the selector":            {at(deployment, "spec.selector.matchLabels"), map[string]any{label: name}},
		"selector of the Service": {at(service, "spec.selector"), map[string]any{label: name}},
		"the port":                {at(container, "ports.0"), map[string]any{"name": "metrics", "containerPort": 9121}},
		"port of the Service":     {at(service, "spec.ports.0.targetPort"), "metrics"},
		"alive":                   {at(container, "livenessProbe.httpGet"), map[string]any{"path": "/healthz", "port": "metrics"}},
		"ready":                   {at(container, "readinessProbe.httpGet"), map[string]any{"path": "/readyz", "port": "metrics"}},
		"the program":             {at(container, "command"), []any{"locktop"}},
		"one user":                {at(pod, "securityContext.runAsNonRoot"), true},
		"no token":                {at(pod, "automountServiceAccountToken"), false},
		"no new rights":           {at(container, "securityContext.allowPrivilegeEscalation"), false},
		"no writing":              {at(container, "securityContext.readOnlyRootFilesystem"), true},
		"no capability":           {at(container, "securityContext.capabilities.drop"), []any{"ALL"}},
		"the system calls":        {at(pod, "securityContext.seccompProfile.type"), "RuntimeDefault"},
		"the password":            {at(pod, "volumes.0.secret.secretName"), at(secret, "metadata.name")},
		"its file":                {at(container, "volumeMounts.0.mountPath"), "/run/secrets/locktop"},
		"the folder":              {at(container, "volumeMounts.1.mountPath"), "/var/lib/locktop"},
		"its size":                {at(pod, "volumes.1.emptyDir.sizeLimit"), "512Mi"},
		"its key":                 {at(secret, "stringData.redis-password"), "CHANGE-ME"},
	} {
		if !reflect.DeepEqual(want.got, want.is) {
			t.Errorf("%s is %v, want %v", what, want.got, want.is)
		}
	}
	var args []string
	for _, arg := range at(container, "args").([]any) {
		args = append(args, arg.(string))
	}
	for _, want := range []string{"--web.listen-address=:9121", "--password-file=/run/secrets/locktop/redis-password", "--record=/var/lib/locktop/box", "--keep-size=400MiB"} {
		if !slices.Contains(args, want) {
			t.Errorf("the pod does not have %s: %q", want, args)
		}
	}
}
