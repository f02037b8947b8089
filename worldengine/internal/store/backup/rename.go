package backup

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"

	"worldengine/worldengine/internal/kit/layout"
)

// renamed returns the snapshot of a stream with the subjects of the restored world. The caller closes
// it, at the end or before.
func (r *restore) renamed(snapshot io.Reader) io.ReadCloser {
	if r.options.As == r.manifest.World {
		return io.NopCloser(snapshot)
	}
	out, in := io.Pipe()
	go func() {
		compressed := s2.NewWriter(in)
		err := rename(compressed, s2.NewReader(snapshot), r.manifest.World, r.options.As)
		if err == nil {
			err = compressed.Close()
		}
		in.CloseWithError(err)
	}()
	return out
}

// rename copies the archive of a stream, and puts the subjects of a world into another.
func rename(to io.Writer, from io.Reader, world, as string) error {
	entries, out := archive.NewReader(from), archive.NewWriter(to)
	for {
		entry, err := entries.Next()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrIncomplete, err) // the mark at the end has not come
		}
		last := entry.Name == "" && entry.Sequence == 0
		if entry.Sequence > 0 {
			if entry.Name, err = layout.RenameStored(entry.Name, world, as); err != nil {
				return err
			}
		}
		if err = out.WriteHeader(entry); err == nil {
			_, err = io.Copy(out, entries)
		}
		if err != nil || last {
			return err
		}
	}
}
