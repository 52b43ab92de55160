package embedded

import "golang.org/x/sys/windows"

// diskSpace is what this user may still write below dir, and the disk's size.
func diskSpace(dir string) (free, total uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, &total, nil)
	return free, total, err
}
