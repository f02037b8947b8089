package backup

import "errors"

var (
	// ErrDirectory means that the directory is not empty, or cannot be written. Give another one.
	ErrDirectory = errors.New("backup: the directory cannot be used")
	// ErrOverwritten means that a town got so many commits during the copy that the copy may lack its state. Make
	// the backup under less load, or with a longer history (--history-per-town).
	ErrOverwritten = errors.New("backup: the log was overwritten while it was copied")
	// ErrIncomplete means that NATS sent only a part of a snapshot. Try again.
	ErrIncomplete = errors.New("backup: the snapshot of a stream did not arrive whole")
	// ErrInvalid means that the directory has no backup, a part of one, or an altered one. Nothing was
	// restored; use another backup.
	ErrInvalid = errors.New("backup: this is not a whole backup")
	// ErrOtherWorld means that the backup is not of the requested world. Request the backup's world.
	ErrOtherWorld = errors.New("backup: the backup is of another world")
	// ErrWorldExists means that the world to restore exists, or a server serves it. Restore into another
	// place, or remove the world first.
	ErrWorldExists = errors.New("backup: the world exists already")
	// ErrRestore means that the restore did not finish. Servers refuse the world until another restore
	// finishes, from this backup or another one.
	ErrRestore = errors.New("backup: the restore did not finish; the next one begins anew")
)
