// Package proofs reproduces figures of the pages: it measures locktop on real servers, beside clients
// of other libraries, for minutes. Most of its tests run only by name, with LOCKTOP_PROOF=1.
package proofs

import (
	"testing"

	"locktop/lab/internal/labtest"
	"locktop/loadgen"
)

func TestMain(m *testing.M) { labtest.Main(m, 8) }

// The exit codes of locktop, as in package cli.
const (
	exitFailure     = 1
	exitFindings    = 3
	exitNoConnect   = 6
	exitThreshold   = 99
	exitInterrupted = 130
)

// loadReport is what the tests read of the report of a load.
type loadReport struct {
	LastError string `json:"last_error"`
	Figures   loadgen.Figures
	Agents    []struct {
		Number  int
		Name    string
		Clock   float64 `json:"clock_behind_ms"`
		Lost    bool    `json:"unreachable"`
		Figures loadgen.Figures
	}
	Witness struct {
		Overlaps int64 `json:"overlap_count"`
		Excused  int64 `json:"excused_count"`
		Unseen   int64 `json:"unseen_count"`
		Examples []struct {
			Client string
			Others []string `json:"other_clients"`
		}
	}
	Seconds []struct{}
	Verdict struct {
		Safe bool
		Gaps []string
	}
}
