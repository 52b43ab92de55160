package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Holder tells whether a process uses the data folder, and which (0: unknown).
// It makes nothing: a folder that does not exist is free. Errors: ErrFolder.
func Holder(dir string) (pid int, held bool, err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	defer func() { _ = f.Close() }() // also unlocks
	switch err := flock(f); {
	case err == nil:
		return 0, false, nil
	case !errors.Is(err, errHeld):
		return 0, false, fmt.Errorf("%w: lock %s: %w", ErrFolder, f.Name(), err)
	}
	if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil {
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	return pid, true, nil
}
