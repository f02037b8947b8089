package storage

import "golang.org/x/sys/windows"

// stat returns the room that the process's user has on the volume of dir.
func stat(dir string) (free, total uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, &total, nil)
	}
	return free, total, err
}
