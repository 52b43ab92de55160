package deploy

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(cleaned{m})
}

// cleaned removes the images after the tests.
type cleaned struct{ m *testing.M }

// Run implements goleak.TestingM.
func (c cleaned) Run() int {
	code := c.m.Run()
	if made != "" {
		if err := os.RemoveAll(made); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}
