package writers

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// spent is the CPU time that processes have used; 0 where that is not told.
func spent(pids ...int) (sum time.Duration) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0
		}
		// pid (name) state … utime stime, in hundredths of a second
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		for _, field := range f[11:13] {
			n, err := strconv.ParseInt(string(field), 10, 64)
			if err != nil {
				return 0
			}
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// spent is the CPU time used by the gateways, the store, and the clients, which
// are this process.
func (f *fleet) spent() (gateways, nats, clients time.Duration) {
	for _, g := range f.gateways {
		gateways += spent(g.Process().Pid())
	}
	return gateways, spent(f.nats.Pid()), spent(os.Getpid())
}
