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

// lockName is the lock file's name in the data folder. The lock is the
// operating system's and dies with the process; the file stays, because
// removing it would let two processes lock two files of one name.
const lockName = "stream.lock"

// lockDir makes the folder, proves that it can be written and locks it.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("%w: %w: choose another with --data-dir or mend its permissions", ErrFolder, err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: choose another with --data-dir or mend its permissions", ErrFolder, err)
	}
	if err := flock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, errHeld) {
			return nil, fmt.Errorf("%w: lock %s: %w", ErrFolder, path, err)
		}
		holder := ""
		if b, rerr := io.ReadAll(io.LimitReader(f, 32)); rerr == nil {
			if pid, perr := strconv.Atoi(strings.TrimSpace(string(b))); perr == nil {
				holder = fmt.Sprintf(" (process %d)", pid)
			}
		}
		return nil, fmt.Errorf("%w: %s%s: stop it, or choose another folder with --data-dir", ErrLocked, dir, holder)
	}
	// The pid is for the reader of an error only; the lock does not need it.
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: write %s: %w", ErrFolder, path, err)
	}
	return f, nil
}
