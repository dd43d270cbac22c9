package contest
import ("testing";"fmt";"time";"os";"strings";"strconv")
func TestTmpHot(t *testing.T) {
	a := arena(t)
	who := in(HotKey)
	if only := os.Getenv("ONLY"); only != "" {
		var w []Contender
		for _, c := range who { for _, o := range strings.Split(only, ",") { if c.Name == o { w = append(w, c) } } }
		who = w
	}
	rounds, _ := strconv.Atoi(os.Getenv("ROUNDS")); if rounds == 0 { rounds = 1 }
	for _, spec := range strings.Split(os.Getenv("CELLS"), ",") {
		var n int; var where string; var hold time.Duration
		f := strings.Split(spec, "/"); n, _ = strconv.Atoi(f[0]); where = f[1]; hold, _ = time.ParseDuration(f[2])
		warm := 500*time.Millisecond
		if n > 500 { warm = 3*time.Second }
		cell := hotCell{n, where == "apart", hold}
		all, err := a.contend(t.Context(), who, cell, rounds, Work{Warm: warm, Length: 2*time.Second})
		if err != nil { t.Fatal(err) }
		tab := hotTable(cell, all)
		fmt.Println(tab.Title, tab.Columns)
		for _, r := range tab.Rows { fmt.Println("   ", strings.Join(r, "  ")) }
	}
}
