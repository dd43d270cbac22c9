package metrics

import (
	"bufio"
	"cmp"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// family is a metric with one or more series of each target.
type family struct {
	name string
	kind string
	help string
	// each writes the samples of a target. It is called only for a target that answers,
	// unless always is set: a gauge that nobody has read is no longer true.
	each   func(p *page, t *target)
	always bool
}

// families lists all metrics of targets, in their order on the page.
func families(o Options) []family {
	all := slices.Concat(passFamilies(), lockFamilies(o))
	if len(o.Locks) > 0 {
		all = append(all, listedFamilies(o.Locks)...)
	}
	if o.Classes {
		all = append(all, classFamilies()...)
	}
	return all
}

// passFamilies lists the metrics of locktop's own work.
func passFamilies() []family {
	return []family{
		{"locktop_target_info", gauge, "The flags with which a command of locktop reads the target; the value is 1.", func(p *page, t *target) { p.number(1, "flags", t.Flags) }, true},
		{"locktop_up", gauge, "Whether the last read of the target succeeded.", func(p *page, t *target) { p.flag(t.up) }, true},
		{"locktop_down_reason", gauge, "Why the last read of the target failed: 1 for the reason, else 0.", func(p *page, t *target) {
			for _, why := range DownReasons() {
				p.flag(t.down == why, "reason", string(why))
			}
		}, true},
		{"locktop_last_answer_timestamp_seconds", gauge, "When the target answered last; its metrics are not newer.", func(p *page, t *target) { p.time(t.reading.AnsweredAt()) }, true},
		{"locktop_pass_complete", gauge, "Whether the keyspace has been scanned since the target answers, each key that may be a lock could be read, and no replica has lost its master; with 0, counts of locks and findings are lower bounds.", func(p *page, t *target) { p.flag(t.reading.Complete) }, false},
		{"locktop_pass_last_timestamp_seconds", gauge, "When the last complete scan of the keyspace ended.", func(p *page, t *target) {
			end, _ := t.pass()
			p.time(end)
		}, true},
		{"locktop_pass_duration_seconds", gauge, "How long the last complete scan of the keyspace took.", func(p *page, t *target) {
			if end, took := t.pass(); !end.IsZero() {
				p.number(took.Seconds())
			}
		}, false},
		{"locktop_keys_seen", gauge, "Keys in the databases that are scanned; absent while it is not known.", func(p *page, t *target) {
			p.known(t.reading.Cost.Keys > 0 || t.reading.Scanned(), int(t.reading.Cost.Keys))
		}, false},
		{"locktop_server_busy_seconds_total", counter, "How long the servers were busy with the commands of locktop.", func(p *page, t *target) { p.number(t.reading.ServerTime.Seconds()) }, true},
		{"locktop_commands_total", counter, "Commands that locktop has sent.", func(p *page, t *target) {
			for _, command := range slices.Sorted(maps.Keys(t.reading.Commands)) {
				p.number(float64(t.reading.Commands[command]), "command", command)
			}
		}, true},
		{"locktop_recording_up", gauge, "Whether the last frame of the recording was written; absent without a recording.", func(p *page, t *target) {
			if t.recorded {
				p.flag(t.recording)
			}
		}, true},
	}
}

// lockFamilies lists the metrics of locks by format.
func lockFamilies(o Options) []family {
	return []family{
		{"locktop_locks", gauge, "Locks by their state: held, read, write, free, waiting, stuck, partial (a Redlock without a majority) or expired (the deadline in the value is over).", byGroup(func(p *page, id []string, g *group) {
			for _, s := range keyspace.States() {
				p.number(float64(g.gauges.locks[s]), append(id, "state", string(s))...)
			}
		}), false},
		{"locktop_waiters", gauge, "Clients that wait for a lock, as far as its format shows them; absent for a format that shows none, unless one is seen.", byGroup(func(p *page, id []string, g *group) {
			p.known(g.gauges.waiters > 0 || !o.hides(id[len(id)-1]), g.gauges.waiters, id...)
		}), false},
		{"locktop_oldest_hold_timestamp_seconds", gauge, "Begin of the longest hold, or when it was first seen.", byGroup(func(p *page, id []string, g *group) { p.time(g.gauges.oldest, id...) }), false},
		{"locktop_findings", gauge, "Problems of locks and servers; absent in place of 0 until all keys were read. With --classes of one database and class.", func(p *page, t *target) {
			for _, k := range slices.SortedFunc(maps.Keys(t.findings), func(a, b keyspace.Problem) int {
				return cmp.Or(cmp.Compare(a.ID, b.ID), int(a.Severity)-int(b.Severity))
			}) {
				for _, class := range slices.SortedFunc(maps.Keys(t.findings[k]), classID.compare) {
					p.known(t.findings[k][class] > 0 || t.reading.Complete, t.findings[k][class], t.labelsOf(k, class)...)
				}
			}
		}, false},
		{"locktop_events_total", counter, "Changes of locks, as locktop watch prints them.", byGroup(func(p *page, id []string, g *group) {
			for _, k := range keyspace.EventKinds() {
				p.number(float64(g.events[k]), append(id, "event", string(k))...)
			}
		}), true},
		{"locktop_events_dropped_total", counter, "Changes that locktop saw and did not count, because there were more than 20,000 between two updates.", func(p *page, t *target) { p.number(float64(t.dropped)) }, true},
		{"locktop_hold_seconds", histogramType, "Duration of the holds that ended and whose begin is known.", byGroup(func(p *page, id []string, g *group) {
			p.distribution(&g.holds, id)
		}), true},
		{"locktop_redlock_copies", gauge, "What the servers have of Redlocks: held, the token that most servers have; other, another token; missing, none; unreachable.", func(p *page, t *target) {
			for _, s := range []copyState{copyHeld, copyOther, copyMissing, copyUnreachable} {
				if t.redlock {
					p.number(float64(t.view.copies[s]), "state", string(s))
				}
			}
		}, false},
	}
}

// labelsOf returns the labels of a finding. All have the same ones: without a class, the two
// of a class are empty.
func (t *target) labelsOf(k keyspace.Problem, class classID) []string {
	labels := []string{"finding", k.ID, "severity", k.Severity.String()}
	switch {
	case t.classes == nil:
		return labels
	case class == noClass:
		return append([]string{"db", "", "class", ""}, labels...)
	}
	return append([]string{"db", strconv.Itoa(class.db), "class", class.name}, labels...)
}

// byGroup returns a function that calls f for each group of a target, with its labels.
func byGroup(f func(p *page, id []string, g *group)) func(*page, *target) {
	return func(p *page, t *target) {
		order := slices.SortedFunc(maps.Keys(t.groups), func(a, b groupID) int {
			return cmp.Or(cmp.Compare(a.db, b.db), strings.Compare(a.format, b.format))
		})
		for _, id := range order {
			labels := []string{"db", strconv.Itoa(id.db), "format", id.format}
			f(p, slices.Clip(labels), t.groups[id])
		}
	}
}

// listedFamilies lists the metrics of single locks.
func listedFamilies(keys []string) []family {
	of := func(f func(p *page, l lockView, id []string)) func(*page, *target) {
		return func(p *page, t *target) {
			for _, key := range keys {
				for _, db := range t.databasesOf(key) {
					if l, seen := t.view.locks[keyspace.ID{DB: db, Key: key}]; seen || t.reading.Complete {
						f(p, l, []string{"db", strconv.Itoa(db), "lock", key})
					}
				}
			}
		}
	}
	return []family{
		{"locktop_lock_held", gauge, "Whether the lock has a holder; absent if it was not found and not all keys could be read.", of(func(p *page, l lockView, id []string) { p.flag(l.held, id...) }), false},
		{"locktop_lock_deadline_timestamp_seconds", gauge, "When the lock expires; absent if it is free or never expires.", of(func(p *page, l lockView, id []string) { p.time(l.deadline, id...) }), false},
		{"locktop_lock_held_since_timestamp_seconds", gauge, "Begin of the hold; absent if the lock is free or the begin is unknown.", of(func(p *page, l lockView, id []string) { p.time(l.since, id...) }), false},
	}
}

// databasesOf lists the databases for which a lock of Options.Locks has series: the one
// of the target; of several, those in which the lock has been seen.
func (t *target) databasesOf(key string) (all []int) {
	if t.reading.DB != AllDatabases {
		return []int{t.reading.DB}
	}
	for id := range t.locks {
		if id.Key == key {
			all = append(all, id.DB)
		}
	}
	slices.Sort(all)
	return all
}

// classFamilies lists the metrics of locks by the pattern of their key.
func classFamilies() []family {
	each := func(write func(p *page, c classGauges, labels ...string)) func(*page, *target) {
		return func(p *page, t *target) {
			sums, _ := t.byClass()
			for _, id := range slices.SortedFunc(maps.Keys(sums), classID.compare) {
				write(p, sums[id], "db", strconv.Itoa(id.db), "class", id.name)
			}
		}
	}
	return []family{
		{"locktop_class_locks", gauge, "Locks by the pattern of their key, in which * stands for IDs.", each(func(p *page, c classGauges, labels ...string) { p.number(float64(c.locks), labels...) }), false},
		{"locktop_class_waiters", gauge, "Clients that wait for the locks of a class, as far as their formats show them; absent if none is seen and some formats show none.", each(func(p *page, c classGauges, labels ...string) {
			p.known(c.waiters > 0 || c.hiding == 0, c.waiters, labels...)
		}), false},
		{"locktop_blocked_seconds_total", counter, "Time that clients waited for the locks of a class, at least: clients that only poll count as one for each lock, and between two reads of a lock as many count as waited at both. One that leaves between two reads, while another comes, counts as one that stays.", func(p *page, t *target) {
			for _, id := range slices.SortedFunc(maps.Keys(t.blocked), classID.compare) {
				p.number(t.blocked[id].Seconds(), "db", strconv.Itoa(id.db), "class", id.name)
			}
		}, true},
		{"locktop_asked_ratio", gauge, "Share of the held locks of a class for which another client waits or has asked within 2 s; absent if requests cannot be seen.", each(func(p *page, c classGauges, labels ...string) {
			if c.held > 0 {
				p.number(float64(c.asked)/float64(c.held), labels...)
			}
		}), false},
		{"locktop_classes_dropped", gauge, "Classes that are counted in the class other, because there are too many.", func(p *page, t *target) {
			_, dropped := t.byClass()
			p.number(float64(dropped))
		}, false},
	}
}

// byClass returns the numbers of each class with a series, and the number of classes
// that are counted as other.
func (t *target) byClass() (sums map[classID]classGauges, dropped int) {
	sums = make(map[classID]classGauges)
	for id := range t.classes {
		sums[id] = classGauges{}
	}
	for id, g := range t.view.classes {
		if !t.classes[id] {
			dropped++
		}
		id = t.classes.series(id)
		sum := sums[id]
		sum.locks += g.locks
		sum.waiters += g.waiters
		sum.hiding += g.hiding
		sum.held += g.held
		sum.asked += g.asked
		sums[id] = sum
	}
	return sums, dropped
}

// ticksPerSecond is the unit of times in /proc: Linux has the same one on all its platforms.
const ticksPerSecond = 100

// WriteProcess writes the metrics of this process, with the names that all exporters use. A system
// without /proc has only those of Go.
func WriteProcess(to io.Writer) error {
	p := &page{out: bufio.NewWriter(to)}
	one := func(name, kind, help string, n float64) {
		p.begin(name, kind, help)
		p.number(n)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	one("go_goroutines", gauge, "Goroutines of the process.", float64(runtime.NumGoroutine()))
	one("go_memstats_alloc_bytes", gauge, "Memory of Go that is in use.", float64(memory.Alloc))
	stat, _ := os.ReadFile("/proc/self/stat") // nothing where there is no /proc
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 22 {
		return p.out.Flush()
	}
	field := func(i int) float64 { // as proc(5) counts, from the state of the process, which is 3
		n, _ := strconv.ParseFloat(fields[i-3], 64)
		return n
	}
	one("process_cpu_seconds_total", counter, "CPU time of the process.", (field(14)+field(15))/ticksPerSecond)
	one("process_virtual_memory_bytes", gauge, "Virtual memory of the process.", field(23))
	one("process_resident_memory_bytes", gauge, "Memory of the process.", field(24)*float64(os.Getpagesize()))
	if system, err := os.ReadFile("/proc/stat"); err == nil {
		_, after, _ := strings.Cut(string(system), "\nbtime ")
		booted, _, _ := strings.Cut(after, "\n")
		if at, err := strconv.ParseFloat(booted, 64); err == nil {
			one("process_start_time_seconds", gauge, "When the process began.", at+field(22)/ticksPerSecond)
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		one("process_open_fds", gauge, "Open files of the process.", float64(len(open)))
	}
	return p.out.Flush()
}

// ContentType is the media type of what Write writes: the text format of Prometheus.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Types of metrics.
const (
	counter       = "counter"
	gauge         = "gauge"
	histogramType = "histogram"
)

// page writes metrics in the text format. out keeps the first error of the output for its Flush.
type page struct {
	out    *bufio.Writer
	family string // name of the metric that was begun last
	target string // of the samples; "" = none
}

// begin begins a metric: the samples that follow belong to it. Each name may begin only once.
func (p *page) begin(name, kind, help string) {
	p.family = name
	p.put("# HELP ", name, " ", helpEscapes.Replace(help), "\n# TYPE ", name, " ", kind, "\n")
}

// number writes a sample with labels: pairs of a valid name and any value.
func (p *page) number(n float64, pairs ...string) { p.sample("", n, pairs) }

// known writes a number if it is known.
func (p *page) known(is bool, n int, pairs ...string) {
	if is {
		p.number(float64(n), pairs...)
	}
}

// flag writes 1 for true, and 0 for false.
func (p *page) flag(is bool, pairs ...string) {
	p.number(map[bool]float64{true: 1}[is], pairs...)
}

// time writes a time in seconds since 1970, unless it is unknown.
func (p *page) time(at time.Time, pairs ...string) {
	if !at.IsZero() {
		p.number(float64(at.UnixMilli())/1000, pairs...)
	}
}

// distribution writes the samples of a histogram with the bounds of holds.
func (p *page) distribution(h *histogram, pairs []string) {
	with := append(slices.Clip(pairs), "le", "")
	for i, bound := range holdBounds() {
		with[len(with)-1] = number(bound)
		p.sample("_bucket", float64(h.counts[i]), with)
	}
	with[len(with)-1] = "+Inf"
	p.sample("_bucket", float64(h.total), with)
	p.sample("_sum", h.sum.Seconds(), pairs)
	p.sample("_count", float64(h.total), pairs)
}

// sample writes a line: the name of the metric with a suffix, the labels, the value.
func (p *page) sample(suffix string, n float64, pairs []string) {
	p.put(p.family, suffix)
	between := "{"
	label := func(name, value string) {
		p.put(between, name, `="`, valueEscapes.Replace(strings.ToValidUTF8(value, "\uFFFD")), `"`)
		between = ","
	}
	if p.target != "" {
		label("target", p.target)
	}
	for pair := range slices.Chunk(pairs, 2) {
		label(pair[0], pair[1])
	}
	if between == "," {
		p.put("}")
	}
	p.put(" ", number(n), "\n")
}

// put writes texts. The error of a bufio.Writer stays until flush.
func (p *page) put(texts ...string) {
	for _, text := range texts {
		_, _ = p.out.WriteString(text)
	}
}

// The format has no other escapes; for any other, Prometheus rejects the whole page.
var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
)

// number returns a number as Prometheus reads it.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
