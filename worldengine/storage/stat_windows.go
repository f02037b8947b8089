package storage

import "golang.org/x/sys/windows"

// stat returns the room that the process's user has on the volume of dir.
func stat(dir string) (Disk, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return Disk{}, err
	}
	var disk Disk
	err = windows.GetDiskFreeSpaceEx(name, &disk.Free, &disk.Total, nil)
	return disk, err
}
