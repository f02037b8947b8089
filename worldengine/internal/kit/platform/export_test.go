package platform

import "os"

// File returns the locked file, for a child that inherits it.
func (l *FileLock) File() *os.File { return l.file }
