package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/tui/widget"
)

// loadPage controls the load generator and shows its clients.
type loadPage struct {
	field  string // name of the selected field of the form; "" = the first one
	opened int    // scene whose settings are shown, from 1; 0 for none
	client int    // target of the next fault, from 1; 0 for a random client
	agent  int    // whose client the next fault hits, from 1; 0 for a client of any agent
}

func (p *loadPage) arrange(*state) {}

const noScenes = "there are no scenes here; `locktop demo` comes with some"

const noLoad = "no load here; use `locktop demo`"

const notStarted = "no clients run here; {start-stop} on the Load page starts some, after a question"

func (p *loadPage) act(s *state, a action) tea.Cmd {
	switch {
	case s.run.load != nil:
	case s.run.begin == nil:
		return s.reject(noLoad)
	case a == startStop:
		s.dialog = confirmStart(s)
		return nil
	default:
		return s.reject(s.keymap.named(notStarted))
	}
	if s.run.awaitsAgents() && a != startStop && a != fieldUp && a != fieldDown {
		return s.reject(s.run.arrivals() + s.keymap.named("; {start-stop} ends the wait"))
	}
	switch a {
	case fieldUp, fieldDown, stepUp, stepDown, enter:
		if p.folded(s) {
			p.opened = s.run.scene + 1
			return nil
		}
	}
	by := map[action]int{
		fieldUp: -1, fieldDown: 1, stepDown: -1, stepUp: 1, fewer: -1, more: 1, shorter: -1, longer: 1,
		choosePrevious: -1, chooseNext: 1, previousScene: -1, nextScene: 1,
	}[a]
	switch a {
	case startStop:
		if s.run.awaitsAgents() {
			return stopLoad(s.run.load, "no longer waiting for agents")
		}
		if s.run.metrics.Running {
			s.notify("stopping the clients " + s.screen.glyphs.Ellipsis)
			return stopLoad(s.run.load, "the clients have stopped; all their locks are released")
		}
		if s.run.launching {
			return s.reject("the clients are starting")
		}
		s.run.launching = true
		return startLoad(s.run.load)
	case fieldUp, fieldDown:
		p.moveField(s, by)
	case stepDown, stepUp:
		return p.stepField(s, p.selectedField(s), by)
	case enter:
		s.dialog = p.fieldPrompt(s)
	case more, fewer:
		return p.stepField(s, fieldNamed("clients"), by)
	case longer, shorter:
		return p.stepField(s, fieldNamed("hold"), by)
	case chooseNext, choosePrevious:
		p.chooseTarget(s, by)
	case faultMenu:
		if !s.run.metrics.Running {
			return s.reject(s.keymap.named("the clients are not running: {start-stop} starts them"))
		}
		s.dialog = p.faultMenu(s)
	case nextScene, previousScene:
		return p.nextScene(s, by)
	case back:
		switch {
		case p.opened > 0 && !p.folded(s):
			p.opened = 0
		case p.client == 0 && p.agent == 0:
			s.leave("nothing to leave")
		}
		p.client, p.agent = 0, 0
	}
	return nil
}

// confirmStart asks whether to start clients on the current server.
func confirmStart(s *state) *menu {
	return &menu{
		title: "Run clients on this server?",
		about: []string{"They compete for locks on " + s.address() + ", which slows down what others do there. All their keys begin with load:{random}: and are deleted when the clients stop. No other key is touched."},
		list:  list[string]{row: 1},
		choices: []choice{
			{key: "y", label: "run", detail: "start 20 clients", pick: func(s *state) (dialog, tea.Cmd) {
				s.notify("starting the clients " + s.screen.glyphs.Ellipsis)
				return nil, s.run.begin()
			}},
			{key: "n", label: "do not run", detail: "only look", pick: func(*state) (dialog, tea.Cmd) { return nil, nil }},
		},
	}
}

// place returns the place of the selected field in the form: the first one if the field is hidden.
func (p *loadPage) place(s *state) int {
	return max(0, slices.IndexFunc(formFields(s.run.scenario), func(k formField) bool { return k.name == p.field }))
}

// moveField selects the field by places further.
func (p *loadPage) moveField(s *state, by int) {
	all := formFields(s.run.scenario)
	p.field = all[max(0, min(p.place(s)+by, len(all)-1))].name
}

// selectedField returns the selected field of the form.
func (p *loadPage) selectedField(s *state) formField { return formFields(s.run.scenario)[p.place(s)] }

func fieldNamed(name string) formField {
	all := allFormFields()
	return all[slices.IndexFunc(all, func(k formField) bool { return k.name == name })]
}

// stepField changes a field by one step, also during a run.
func (p *loadPage) stepField(s *state, k formField, direction int) tea.Cmd {
	next := s.run.scenario
	k.step(&next, direction)
	return p.change(s, k, next, "already at the limit: "+k.name+" is "+k.value(next))
}

// change requests a scenario with a new value of a field, if the scenario is valid. same is the message if the
// value is the present one.
func (p *loadPage) change(s *state, k formField, next loadgen.Scenario, same string) tea.Cmd {
	if err := next.Validate(); err != nil {
		return s.reject(formWords(err))
	}
	if why := s.run.refuses(next); why != "" {
		return s.reject(why)
	}
	if k.value(next) == k.value(s.run.scenario) {
		return s.reject(same)
	}
	s.notify(k.name + ": " + k.value(next))
	return s.run.request(next, false)
}

// fieldPrompt opens a prompt for the value of the selected field.
func (p *loadPage) fieldPrompt(s *state) dialog {
	k := p.selectedField(s)
	d := newPrompt(k.name+": ", "")
	d.note = func(string) (string, bool) { return "now " + k.value(s.run.scenario), false }
	d.finish = func(text string) (dialog, tea.Cmd) {
		next := s.run.scenario
		if err := k.parse(&next, text); err != nil {
			return nil, s.reject(k.name + ": " + widget.Plain(err.Error()))
		}
		return nil, p.change(s, k, next, k.name+" is "+k.value(next)+" already")
	}
	return d
}

// chooseTarget moves the selection of the client for the next fault. Before the first and after the
// last client, it selects a random client. With agents it selects an agent.
func (p *loadPage) chooseTarget(s *state, by int) {
	if agents := len(s.run.agents.all); agents > 0 {
		p.client, p.agent = 0, (p.agent+by+agents+1)%(agents+1)
		return
	}
	n := len(s.run.metrics.Clients.States) + 1
	p.client = (p.client + by + n) % n
}

// click selects a field of the form.
func (p *loadPage) click(s *state, x, line int) (again bool) {
	if s.run.load == nil || p.folded(s) || x >= leftWidth(s.screen.w) {
		return false
	}
	top, middle, _ := p.layout(s, s.screen.w, s.frame().body)
	first, last := p.formWindow(s, middle)
	if row := first + line - len(top) - 1; row >= first && row < last {
		again = row == p.place(s)
		p.field = formFields(s.run.scenario)[row].name
	}
	return again
}

// nextScene starts the scene by places after the current one, or the next one that the load can
// run.
func (p *loadPage) nextScene(s *state, by int) tea.Cmd {
	if len(s.run.scenes) == 0 {
		return s.reject(noScenes)
	}
	if s.run.scene < 0 && by < 0 {
		by = 0
	}
	n, at, why := len(s.run.scenes), s.run.scene, ""
	for range n {
		at = (at + by + n) % n
		if why = s.run.refuses(s.run.scenes[at]); why == "" {
			return s.run.startScene(at)
		}
		by = cmp.Or(by, -1)
	}
	return s.reject(why)
}

// step returns the next number in a direction: in steps of 1 below 10, of 10 below 100, and so
// on.
func step(n, direction int) int {
	size := 1
	for n >= 10*size && (direction > 0 || n > 10*size) {
		size *= 10
	}
	next := (n/size + direction) * size
	if direction < 0 && n%size != 0 {
		next = n / size * size
	}
	return max(1, min(next, loadgen.MaxClients))
}

// summary draws the current metrics.
func (p *loadPage) summary(s *state, l *widget.Line) {
	t, g, m := s.screen.theme, s.screen.glyphs, s.run.metrics
	if s.run.load == nil {
		l.Put(t.dim, "no load")
		return
	}
	running := segment{style: t.dim, text: g.Ring + " stopped"}
	switch {
	case s.run.awaitsAgents():
		running = segment{style: t.warn, text: g.Ring + " " + s.run.arrivals()}
	case m.Running:
		running = segment{style: t.good, text: g.Dot + " running"}
	}
	scene := ""
	if s.run.scene >= 0 {
		scene = fmt.Sprintf("scene %d of %d", s.run.scene+1, len(s.run.scenes))
	}
	layoutLine(l, g, []segment{
		running,
		{style: t.text, text: humanize.Clock(m.Elapsed), priority: 3},
		{style: t.strong, text: s.run.clientCount()},
		{style: t.strong, text: humanize.Count(rate(m)) + "/s", priority: 2},
		{style: t.text, text: "p99 " + humanize.Duration(m.Latency.Wait.P99), priority: 4},
		{style: t.key, text: scene, priority: 5},
	}, []segment{s.overlaps()})
}

// overlaps says whether leases of two clients overlapped, and otherwise whether their work did.
func (s *state) overlaps() segment {
	t, g, m := s.screen.theme, s.screen.glyphs, s.run.metrics
	switch n := max(m.Violations.Overlap.Count, s.provenOverlaps()); {
	case n > 0:
		return segment{style: t.alarm, text: " " + g.Alert + " " + humanize.Plural(n, "overlap") + " "}
	case m.Violations.StuckKey.Count > m.Violations.StuckKey.Excused || s.run.faultLog.lost:
		return segment{style: t.bad, text: g.Alert + " nobody can get a lock"}
	case m.Violations.WorkOverlap.Count > 0:
		return segment{style: t.warn, text: g.Alert + " no overlap of leases", priority: 1}
	case m.Oracles > 1:
		return segment{style: t.good, text: g.Check + " no overlap seen", priority: 1}
	}
	return segment{style: t.good, text: g.Check + " no overlaps", priority: 1}
}

// rate returns the number of acquisitions in the last full second, 0 if the load is stopped.
func rate(m loadgen.Metrics) int64 {
	past := fullSeconds(m)
	if len(past) == 0 || !m.Running {
		return 0
	}
	return past[len(past)-1].Acquired
}

// fullSeconds returns the completed seconds.
func fullSeconds(m loadgen.Metrics) []loadgen.Second {
	return m.Seconds[:max(0, len(m.Seconds)-1)]
}

func (p *loadPage) faultMenu(s *state) *menu {
	choose := s.keymap.named("; on the page, {previous-client} and {next-client} choose ")
	target := "a client at random" + choose + "one"
	agent := min(p.agent, len(s.run.agents.all))
	switch {
	case agent > 0:
		target = fmt.Sprintf("a client of agent %d at random%sanother agent", agent, choose)
	case len(s.run.agents.all) > 0:
		target = "a client of any agent at random" + choose + "an agent"
	case p.client > 0:
		target = fmt.Sprintf("client-%d%sanother one", p.client, choose)
	}
	m := &menu{title: "Inject a fault", about: []string{"Target: " + target + "."}}
	for _, f := range faultChoices(s.run.scenario) {
		f.fault.Client = p.client
		if !f.fault.Kind.OnServers() {
			f.fault.Agent = agent
		}
		now := s.run.scenario
		if now.Faults = []loadgen.Fault{f.fault}; s.run.refuses(now) != "" {
			continue // not for this lock, or not on these servers
		}
		m.choices = append(m.choices, choice{
			key: f.key, label: string(f.fault.Kind), detail: f.detail,
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
}

// faultChoices lists the faults for a scenario, each long enough to be visible.
func faultChoices(s loadgen.Scenario) []faultChoice {
	long := 3 * s.Lock.TTL
	brief := max(2*time.Second, s.Lock.TTL)
	past := "for " + humanize.Setting(long) + ", three leases"
	all := []faultChoice{
		{"c", loadgen.Fault{Kind: loadgen.Crash, For: long}, "a holder is gone without releasing; its lock has to expire"},
		{"z", loadgen.Fault{Kind: loadgen.Freeze, For: long}, "a holder gets no CPU " + past},
		{"x", loadgen.Fault{Kind: loadgen.Partition, For: long}, "no packet of a holder gets through " + past},
		{"r", loadgen.Fault{Kind: loadgen.DropReplies, For: brief}, "requests arrive, replies are lost: a holder that does not know it"},
		{"l", loadgen.Fault{Kind: loadgen.Slow, For: long, Delay: 200 * time.Millisecond, Jitter: 100 * time.Millisecond}, "every packet of a client takes 200 ms longer"},
		{"t", loadgen.Fault{Kind: loadgen.Skew, For: long, By: long}, "the clock of a client is ahead " + past},
		{"o", loadgen.Fault{Kind: loadgen.Leak, For: long}, "a holder never releases, and goes on renewing"},
		{"g", loadgen.Fault{Kind: loadgen.Greedy, For: long}, "a client comes back at once after every release"},
		{"s", loadgen.Fault{Kind: loadgen.ExternalDelete}, "another program deletes a lock that is held"},
		{"v", loadgen.Fault{Kind: loadgen.Flush}, "all locks of the run are deleted"},
	}
	if !s.Lock.Kind.Quorum() { // no servers to spare
		return all
	}
	return append(all, []faultChoice{
		{"a", loadgen.Fault{Kind: loadgen.NodeDown, Node: 1, For: long}, "the first server dies, and comes back with what it had"},
		{"d", loadgen.Fault{Kind: loadgen.NodeDown, Node: 4, For: long}, "the fourth server, too"},
		{"e", loadgen.Fault{Kind: loadgen.NodeDown, Node: 5, For: long}, "and the fifth"},
		{"w", loadgen.Fault{Kind: loadgen.RestartEmpty, Node: 1, For: time.Second}, "the first server restarts empty"},
	}...)
}

// sceneKeys are the keys of the scenes in the menu: small letters, and capitals for the historic locks. They exclude
// j, k and q, which navigate in a menu, and the keys of scenes and faults on the Load page: m, n, b and f.
const sceneKeys = "acdeghiloprstuvwxyz"

// scenesMenu returns the menu of scenes, each with its lesson: the first sentence of its caption.
func (f *loadState) scenesMenu(keys keymap) *menu {
	m := &menu{title: "Choose a scene", whole: true, about: []string{
		keys.named("A letter starts a scene, later {next-scene} the next. Capitals: how others fail."),
	}}
	used := map[bool]int{}
	for i, scene := range f.scenes {
		sound := scene.Lock.Kind.Sound()
		key := sceneKeys[used[sound]%len(sceneKeys):][:1]
		if used[sound]++; !sound {
			key = strings.ToUpper(key)
		}
		lesson, _, _ := strings.Cut(widget.Plain(scene.Caption), ". ")
		m.choices = append(m.choices, choice{
			key: key, label: scene.Name, detail: lesson, about: widget.Plain(scene.Caption), disabled: f.refuses(scene),
			pick: func(s *state) (dialog, tea.Cmd) {
				s.next = func(a *app) tea.Cmd { return a.perform(openLoad) }
				return nil, s.run.startScene(i)
			},
		})
	}
	return m
}
