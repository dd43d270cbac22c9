package certify

import (
	"encoding/json"
	"math"
	"time"
)

// milliseconds is a duration in JSON: a number of milliseconds, rounded to microseconds.
type milliseconds time.Duration

// MarshalJSON implements [json.Marshaler].
func (m milliseconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(math.Round(float64(m)/float64(time.Microsecond)) / 1000)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *milliseconds) UnmarshalJSON(text []byte) error {
	var ms float64
	err := json.Unmarshal(text, &ms)
	*m = milliseconds(math.Round(ms*1000) * float64(time.Microsecond))
	return err
}

// plainVerdict is a Verdict without its methods.
type plainVerdict Verdict

type jsonVerdict struct {
	plainVerdict
	Took milliseconds `json:"took_ms"`
}

// MarshalJSON implements [json.Marshaler].
func (v Verdict) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonVerdict{plainVerdict(v), milliseconds(v.Took)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (v *Verdict) UnmarshalJSON(text []byte) error {
	var j jsonVerdict
	err := json.Unmarshal(text, &j)
	*v = Verdict(j.plainVerdict)
	v.Took = time.Duration(j.Took)
	return err
}

// plainSpan is a Span without its methods.
type plainSpan Span

type jsonSpan struct {
	plainSpan
	From milliseconds `json:"from_ms"`
	To   milliseconds `json:"to_ms"`
}

// MarshalJSON implements [json.Marshaler].
func (s Span) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonSpan{plainSpan(s), milliseconds(s.From), milliseconds(s.To)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Span) UnmarshalJSON(text []byte) error {
	var j jsonSpan
	err := json.Unmarshal(text, &j)
	*s = Span(j.plainSpan)
	s.From, s.To = time.Duration(j.From), time.Duration(j.To)
	return err
}
