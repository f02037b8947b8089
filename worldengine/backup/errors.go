package backup

import "errors"

var (
	// ErrDirectory: a backup cannot be made in a directory that is not empty, or cannot be written.
	// Give another.
	ErrDirectory = errors.New("backup: the directory cannot be used")
	// ErrOutrun: a town got so many commits while its history was copied that the copy may lack its
	// state. Make the backup under less load, or with a longer history (--history-per-town).
	ErrOutrun = errors.New("backup: the log was overwritten while it was copied")
	// ErrIncomplete: NATS did not send a snapshot to its end. Try again.
	ErrIncomplete = errors.New("backup: the snapshot of a stream did not arrive whole")
	// ErrInvalid: a directory holds no backup, a part of one, or one that was altered. Nothing was
	// restored; take another backup.
	ErrInvalid = errors.New("backup: this is not a whole backup")
	// ErrOtherWorld: the backup is of another world than requested. Ask for that one.
	ErrOtherWorld = errors.New("backup: the backup is of another world")
	// ErrWorldExists: the world to restore exists, or a server serves it. Restore into another
	// place, or remove the world first.
	ErrWorldExists = errors.New("backup: there is such a world already")
	// ErrRestore: a restore began and did not finish. Until another one does, of the same backup or
	// of another, no server serves the world.
	ErrRestore = errors.New("backup: the restore did not come to its end; the next one begins anew")
)
