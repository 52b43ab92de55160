//go:build unix

package embedded

import "golang.org/x/sys/unix"

// diskSpace is what this user may still write below dir, and the disk's size.
func diskSpace(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), uint64(st.Blocks) * uint64(st.Bsize), nil //nolint:unconvert // types differ by system
}
