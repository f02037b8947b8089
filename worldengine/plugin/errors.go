package plugin

import "errors"

// Errors of Serve, Hosts, Close and the memory.
var (
	// ErrConfig: the Config lacks something or has it wrong. The text says what; correct it.
	ErrConfig = errors.New("plugin: the configuration cannot be used")
	// ErrSubscribe: the requests of a town cannot be received. The text says why, such as a
	// permission that the connection's user lacks.
	ErrSubscribe = errors.New("plugin: the requests cannot be subscribed to")
	// ErrMayNotAsk: the connection's user may not ask who hosts a town, so it is not known whether
	// another plugin does. Give it the role plugin with the permissions of this version.
	ErrMayNotAsk = errors.New("plugin: it cannot be asked who hosts a town")
	// ErrNoAnswer: Apply and Recover return it to have a request get no answer. The command counts as
	// begun, and Recover is asked at the next request; Config.Recover must be set.
	ErrNoAnswer = errors.New("plugin: the request gets no answer")
	// ErrUnfinished: Close had to end before the commands in hand were finished. What was begun is
	// in doubt until Recover is asked about it, after the next start.
	ErrUnfinished = errors.New("plugin: commands are still being applied")
	// ErrNotMemory: the file is something else, so it was left alone. Give another path.
	ErrNotMemory = errors.New("plugin: the file is not a plugin's memory")
	// ErrCorrupt: the memory's file is damaged elsewhere than at its end, where a crash tears it.
	// Restore it, or move it away and compare the game with the engine's towns: ids that it held
	// are forgotten.
	ErrCorrupt = errors.New("plugin: the memory is damaged")
	// ErrLocked: another process uses the memory's file. End that one first.
	ErrLocked = errors.New("plugin: the memory is in use by another process")
	// ErrBroken: the memory's file cannot be written any more. Nothing new is begun; free the disk
	// and open it again.
	ErrBroken = errors.New("plugin: the memory can no longer be written")
)
