//go:build linux || darwin

package main

import "syscall"

// openFileLimit is how many files this process may have open. Go has raised the
// soft limit to the hard one, as it does for serve.
func openFileLimit() (uint64, bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	return uint64(r.Cur), true
}

// diskSpace is what a user may still write to the file system of a folder.
func diskSpace(dir string) (free, total uint64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, false
	}
	size := uint64(st.Bsize)
	return st.Bavail * size, st.Blocks * size, true
}
