package tui

import (
	"fmt"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/humanize"
	"locktop/loadgen"
	"locktop/tui/widget"
)

func (p *loadPage) faultMenu(s *state) *menu {
	who := "a client at random; on the page, h and l choose one"
	if p.client > 0 {
		who = fmt.Sprintf("client-%d; on the page, h and l choose another one", p.client)
	}
	m := &menu{title: "Inject a fault", about: []string{"Target: " + who + "."}}
	for _, f := range faultChoices(s.run.scenario) {
		f.fault.Client = p.client
		if !s.run.metrics.Running {
			f.refuse = "the clients are not running: s starts them"
		}
		m.choices = append(m.choices, choice{
			key: f.key, label: string(f.fault.Kind), detail: f.detail, refuse: f.refuse,
			pick: func(s *state) (dialog, tea.Cmd) { return nil, inject(s.run.load, f.fault) },
		})
	}
	return m
}

// faultChoice is a fault in the menu.
type faultChoice struct {
	key    string
	fault  loadgen.Fault
	detail string
	refuse string
}

// faultChoices lists the faults for a scenario, each long enough to be visible.
func faultChoices(s loadgen.Scenario) []faultChoice {
	long := 3 * s.Lock.TTL
	brief := max(2*time.Second, s.Lock.TTL)
	past := "for " + humanize.Setting(long) + ", three leases"
	nodes := ""
	if s.Lock.Kind != loadgen.Redlock {
		nodes = "only a redlock has servers to spare"
	}
	return []faultChoice{
		{"c", loadgen.Fault{Kind: loadgen.Crash, For: long}, "a holder is gone without releasing; its lock has to expire", ""},
		{"z", loadgen.Fault{Kind: loadgen.Freeze, For: long}, "a holder gets no CPU " + past, ""},
		{"x", loadgen.Fault{Kind: loadgen.Partition, For: long}, "no packet of a holder gets through " + past, ""},
		{"r", loadgen.Fault{Kind: loadgen.DropReplies, For: brief}, "requests arrive, replies are lost: a holder that does not know it", ""},
		{"l", loadgen.Fault{Kind: loadgen.Slow, For: long, Delay: 200 * time.Millisecond, Jitter: 100 * time.Millisecond}, "every packet of a client takes 200 ms longer", ""},
		{"o", loadgen.Fault{Kind: loadgen.Leak, For: long}, "a holder never releases, and goes on renewing", ""},
		{"g", loadgen.Fault{Kind: loadgen.Greedy, For: long}, "a client comes back at once after every release", ""},
		{"s", loadgen.Fault{Kind: loadgen.ExternalDelete}, "another program deletes a lock that is held", ""},
		{"v", loadgen.Fault{Kind: loadgen.Flush}, "all locks of the run are deleted", ""},
		{"1", loadgen.Fault{Kind: loadgen.NodeDown, Node: 1, For: long}, "the first server dies, and comes back with what it had", nodes},
		{"4", loadgen.Fault{Kind: loadgen.NodeDown, Node: 4, For: long}, "the fourth server, too", nodes},
		{"5", loadgen.Fault{Kind: loadgen.NodeDown, Node: 5, For: long}, "and the fifth", nodes},
		{"e", loadgen.Fault{Kind: loadgen.RestartEmpty, Node: 1, For: time.Second}, "the first server restarts empty", nodes},
	}
}

// sceneKeys are the keys of the scenes in the menu. They exclude j, k and q, which navigate in
// a menu.
const sceneKeys = "abcdefghilmnoprstuvwxyz"

// scenesMenu returns the menu of scenes. The demo begins with it.
func (f *loadState) scenesMenu() *menu {
	m := &menu{title: "Choose a scene", about: []string{"Each scene lasts a few seconds and ends with a verdict. On page 3: n/b next/previous scene, m this menu, f inject a fault. Esc: just look around."}}
	for i, scene := range f.scenes {
		m.choices = append(m.choices, choice{
			key: sceneKeys[i%len(sceneKeys):][:1], label: scene.Name, detail: scene.Watch, about: widget.Plain(scene.Caption),
			pick: func(s *state) (dialog, tea.Cmd) {
				s.next = openPageMsg{onLoad}
				return nil, s.run.startScenario(i)
			},
		})
	}
	return m
}
