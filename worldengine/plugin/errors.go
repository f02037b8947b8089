package plugin

import "errors"

// Errors of Serve, Hosts, Close and the memory.
var (
	// ErrConfig: the Config has a missing or invalid member, which the text names.
	ErrConfig = errors.New("plugin: the configuration cannot be used")
	// ErrSubscribe: a town's requests cannot be subscribed to. The text has the cause, such as a
	// permission that the connection's user lacks.
	ErrSubscribe = errors.New("plugin: the requests cannot be subscribed to")
	// ErrMayNotAsk: the connection's user may not ask who hosts a town, so another plugin may. Give
	// it the role plugin with the permissions of this version.
	ErrMayNotAsk = errors.New("plugin: it cannot be asked who hosts a town")
	// ErrNoAnswer: Apply and Recover return it to leave a request unanswered. The command counts as
	// begun, and the next request calls Recover; Config.Recover must be set.
	ErrNoAnswer = errors.New("plugin: the request gets no answer")
	// ErrUnfinished: Close ended before all commands were finished. After the next start, those
	// that were begun are in doubt until Recover answers.
	ErrUnfinished = errors.New("plugin: commands are still being applied")
	// ErrNotMemory: the file is no memory, so it was left alone. Give another path.
	ErrNotMemory = errors.New("plugin: the file is not a plugin's memory")
	// ErrCorrupt: the memory's file is damaged elsewhere than at its end, which a crash may tear.
	// Restore it, or move it away, which forgets its ids, and compare the game with the engine's
	// towns.
	ErrCorrupt = errors.New("plugin: the memory is damaged")
	// ErrLocked: another process uses the memory's file. End that one first.
	ErrLocked = errors.New("plugin: the memory is in use by another process")
	// ErrBroken: the memory's file cannot be written any more. No command is begun; free the disk
	// and open it again.
	ErrBroken = errors.New("plugin: the memory can no longer be written")
)
