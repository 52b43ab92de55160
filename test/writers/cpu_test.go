package writers

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// spent is the CPU time that the machine has used, without idling; 0 where that
// is not told.
func spent() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	var ticks int64
	for i, f := range bytes.Fields(line) {
		// cpu user nice system idle iowait irq softirq steal
		if i == 0 || i == 4 || i == 5 || i > 7 {
			continue
		}
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
