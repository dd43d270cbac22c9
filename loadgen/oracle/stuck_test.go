package oracle

import (
	"testing"
	"time"

	"locktop/internal/check"
)

// What troubles the clients does not count, also if troubles overlap.
func TestTheLongestCalm(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	freeze := func(from, to int) Trouble { return Trouble{Cause: "freeze", From: at(from), To: at(to)} }
	for name, c := range map[string]struct {
		all  []Trouble
		want int
	}{
		"nothing":               {nil, 10},
		"a short stall":         {[]Trouble{{Cause: Stalled, From: at(13), To: at(14)}}, 6},
		"before and after":      {[]Trouble{freeze(1, 9), freeze(21, 30)}, 10},
		"from before on":        {[]Trouble{freeze(1, 12)}, 8},
		"one inside another":    {[]Trouble{freeze(11, 19), freeze(12, 13)}, 1},
		"in the order of ends":  {[]Trouble{freeze(17, 18), freeze(12, 13)}, 4},
		"it lasts":              {[]Trouble{{Cause: "cut", From: at(14), lasting: true}}, 4},
		"the whole time":        {[]Trouble{freeze(9, 15), freeze(15, 20)}, 0},
		"no crash, no deletion": {[]Trouble{{Cause: "crash", From: at(5), lasting: true}, {Cause: "steal", From: at(15), To: at(16)}}, 10},
	} {
		o := Oracle{troubles: c.all}
		check.Equal(t, o.calm(span{at(10), at(20)}), time.Duration(c.want)*time.Second, "%s", name)
	}
}
