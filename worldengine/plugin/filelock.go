package plugin

import (
	"errors"
	"fmt"
	"io"
	"os"

	"worldengine/worldengine/platform"
)

// lockFile locks name against other processes until it is closed or the process ends. The file
// stays: if it were removed, two processes could lock two files of one name.
func lockFile(name string) (io.Closer, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("plugin: the memory's lock cannot be opened: %w", err)
	}
	if err := platform.Lock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrLocked, name, err), file.Close())
	}
	return file, nil
}
