package report

import (
	"locktop/loadgen/oracle"
)

// jsonExplained is the JSON form of suspects that a cause explains.
type jsonExplained struct {
	Violation oracle.Violation `json:"violation"`
	Cause     string           `json:"cause"`
	Why       string           `json:"why"`
	Count     int64            `json:"count"`
	Client    string           `json:"client,omitempty"` // the first one that the cause struck
	Clients   int              `json:"clients"`          // how many clients it struck; 0 = none in particular
}

func explainedJSON(all []oracle.Explained) []jsonExplained {
	list := []jsonExplained{}
	for _, e := range all {
		one := jsonExplained{Violation: e.Violation, Cause: e.Cause, Why: e.Why, Count: e.Count, Clients: e.Clients}
		if e.Client > 0 {
			one.Client = oracle.ClientLabel(e.Client)
		}
		list = append(list, one)
	}
	return list
}
