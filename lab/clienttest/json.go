package clienttest

import (
	"encoding/json"
	"math"
	"time"
)

// Milliseconds is a duration. In JSON it is a number of milliseconds, rounded to microseconds.
type Milliseconds time.Duration

// MarshalJSON implements [json.Marshaler].
func (m Milliseconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(math.Round(float64(m)/float64(time.Microsecond)) / 1000)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Milliseconds) UnmarshalJSON(text []byte) error {
	var ms float64
	err := json.Unmarshal(text, &ms)
	*m = Milliseconds(math.Round(ms*1000) * float64(time.Microsecond))
	return err
}
