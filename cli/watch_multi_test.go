package cli

import (
	"strings"
	"testing"

	"locktop/server"
)

// The master fails, and Sentinels replace it by a replica.
func TestWatchGoesOnOnTheServerThatTakesTheMastersPlace(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	rig := server.SentinelGroupForTest(t, server.SentinelOptions{Replicas: 1})
	master := rig.Master().Addr()
	args := []string{"--timeout", "500ms", "--master", server.SentinelMaster}
	for _, addr := range rig.Sentinels() {
		args = append(args, "--sentinel", addr)
	}
	send(t, master, "SET", "lock:a", token, "PX", "600000")
	send(t, master, "WAIT", "1", "5000")
	w := startWatch(t, args...)
	w.out.sees(t, `appeared lock:a`)
	if err := rig.Master().Kill(); err != nil {
		t.Fatal(err)
	}
	w.errors.sees(t, `^locktop: .*has taken the place of `+master+`$`)
	if said := w.out.String(); strings.Contains(said, "released") || strings.Contains(said, "expired") {
		t.Errorf("nobody released anything:\n%s", said)
	}
	w.out.sees(t, `appeared lock:a(.|\n)*appeared lock:a`)
}
