// Package proofs reproduces figures of the pages: it measures locktop on real servers, beside clients
// of other libraries, for minutes. Most of its tests run only by name, with LOCKTOP_PROOF=1.
package proofs

import (
	"testing"

	"locktop/lab/internal/labtest"
	"locktop/loadgen"
)

func TestMain(m *testing.M) { labtest.Main(m, 8) }

// loadReport is what the tests read of the report of a load.
type loadReport struct {
	Figures   loadgen.Figures
	LastError string `json:"last_error"`
}
