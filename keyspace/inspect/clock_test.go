package inspect

import (
	"testing"
	"time"
)

// An earlier reply to another command says nothing about the present difference
// between the clocks.
func TestClocksAreComparedOnlyWhenTheServerWasAsked(t *testing.T) {
	f := NewWatcher(&Scanner{})
	f.reader.conn.now = time.Now().Add(-time.Hour)
	if err := f.refreshKeys(t.Context(), nil, changes{}); err != nil {
		t.Fatal(err)
	}
	if f.times.clockOffset != 0 {
		t.Errorf("nothing was asked, and the server's clock is %v off", f.times.clockOffset)
	}
}
