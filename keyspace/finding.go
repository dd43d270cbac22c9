package keyspace

// Severity orders findings.
type Severity uint8

// From a hint to something that does damage now.
const (
	Info Severity = iota
	Warning
	Critical
)

// String returns the word of the JSON contract.
func (s Severity) String() string { return [...]string{"info", "warning", "critical"}[s] }

// Finding is something wrong with a lock, in one sentence, with what to do about it.
type Finding struct {
	ID       string // stable: never-expires, overdue …
	Severity Severity
	Lock     ID
	Text     string // one sentence
	Remedy   string // the safe thing to do, one sentence
}
