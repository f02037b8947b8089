package plugin

import "errors"

// Errors of Serve, Hosts, Close and the memory.
var (
	// ErrConfig: the Config has a missing or invalid member, which the text names.
	ErrConfig = errors.New("plugin: the configuration cannot be used")
	// ErrSubscribe: the connection cannot subscribe to a town's requests. The text has the cause, such
	// as a permission that its user lacks.
	ErrSubscribe = errors.New("plugin: the requests cannot be subscribed to")
	// ErrMayNotAsk: the connection's user may not ask who hosts a town, so another plugin may host
	// it. Give the user the role plugin with the permissions of this version.
	ErrMayNotAsk = errors.New("plugin: this user may not ask who hosts a town")
	// ErrNoAnswer is returned by Apply and Recover to leave a request unanswered. The command counts
	// as begun, and the next request calls Recover; Config.Recover must be set.
	ErrNoAnswer = errors.New("plugin: the request gets no answer")
	// ErrUnfinished: Close ended before all commands were finished. After the next start, begun
	// commands are in doubt until Recover answers.
	ErrUnfinished = errors.New("plugin: commands are still being applied")
	// ErrNotMemory: the file is no memory, and was not changed. Give another path.
	ErrNotMemory = errors.New("plugin: the file is not a plugin's memory")
	// ErrCorrupt: the memory's file is damaged before its last line, so not by a crash. Restore the
	// file. Or move it away, so that its ids are forgotten, and compare the game with the engine's
	// towns.
	ErrCorrupt = errors.New("plugin: the memory is damaged")
	// ErrLocked: another process uses the memory's file. End that process first.
	ErrLocked = errors.New("plugin: the memory is in use by another process")
	// ErrBroken: the memory's file can no longer be written, and no command is begun. Make room on
	// the disk, and open the memory again.
	ErrBroken = errors.New("plugin: the memory can no longer be written")
)
