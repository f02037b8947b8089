package layout

import (
	"strings"

	"worldengine/worldengine/wire"
)

// LogStream returns the name of the stream that is the commit log of a world.
func LogStream(world string) string { return stream(world, "LOG") }

// LogWorld returns the world whose log is the stream of a name. ok is false for any other stream.
func LogWorld(stream string) (world string, ok bool) { return worldOf(stream, "_LOG") }

// RestoringWorld returns the world whose RestoringStream is the stream of a name. ok is false for any
// other stream.
func RestoringWorld(stream string) (world string, ok bool) { return worldOf(stream, "_RESTORING") }

func worldOf(stream, suffix string) (world string, ok bool) {
	world, named := strings.CutPrefix(stream, "WORLD_")
	world, ends := strings.CutSuffix(world, suffix)
	return world, named && ends && wire.ValidateWorld(world) == nil
}

// DeadLetterStream returns the name of the stream of messages that the bus gave up.
func DeadLetterStream(world string) string { return stream(world, "DEADLETTER") }

// AlertStream returns the name of the stream of a world's alerts.
func AlertStream(world string) string { return stream(world, "ALERTS") }

// WriterBucket returns the name of the key-value bucket with the lease of a world's writer.
func WriterBucket(world string) string { return stream(world, "WRITER") }

// RestoringStream returns the name of the stream that exists while a restore of the world is
// unfinished.
func RestoringStream(world string) string { return stream(world, "RESTORING") }

// Streams returns the names of all streams that a served world has. RestoringStream is not among
// them.
func Streams(world string) []string {
	return []string{
		LogStream(world), wire.EventStream(world), DeadLetterStream(world), AlertStream(world),
	}
}

func stream(world, name string) string { return "WORLD_" + world + "_" + name }
