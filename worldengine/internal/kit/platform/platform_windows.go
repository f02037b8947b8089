package platform

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

func lock(file *os.File) error {
	const all = ^uint32(0)
	err := windows.LockFileEx(windows.Handle(file.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, all, all,
		new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}

// unlock does nothing: closing the file unlocks it.
func unlock(*os.File) error { return nil }

// syncParent does nothing: a directory cannot be synchronized by itself.
func syncParent(string) error { return nil }

// Sync makes the content of a file durable.
func Sync(path string) error {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// ProcessorTime returns the processor time of all threads of this process, or 0 if it is not known.
func ProcessorTime() time.Duration {
	var created, ended, kernel, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &created, &ended, &kernel, &user) != nil {
		return 0
	}
	return duration(kernel) + duration(user)
}

// DiskSpace returns the bytes that the process's user may still write on the volume of a directory, and the
// bytes that the volume has in all.
func DiskSpace(dir string) (free, total uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, &total, nil)
	}
	return free, total, err
}

// duration returns a number of 100 nanoseconds. Filetime.Nanoseconds counts from 1970.
func duration(t windows.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}

// IsPrivate reports whether a file belongs to this user. It does not read the access list: the
// directory's holds, and a profile's directories are private.
func IsPrivate(path string, _ os.FileInfo) bool {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return false
	}
	of, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return false
	}
	owner, _, err := of.Owner()
	return err == nil && owner.Equals(user.User.Sid)
}

// IsShared reports false: a file has no mode here, and the directory's access list holds.
func IsShared(os.FileInfo) bool { return false }
