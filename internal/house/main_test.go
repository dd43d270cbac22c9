package house

import (
	"log"
	"os"
	"testing"
)

// The tests read files by their names from the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		log.Fatal(err)
	}
	m.Run()
}
