package diskspace

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/messages"
)

// disk is a disk whose free room a test sets.
type disk struct {
	free  atomic.Uint64
	total uint64
	err   atomic.Pointer[error]
}

func (d *disk) look(string) (free, total uint64, err error) {
	if err := d.err.Load(); err != nil {
		return 0, 0, *err
	}
	return d.free.Load(), d.total, nil
}

// set sets the free room, and makes the Watch read it.
func (d *disk) set(r *Watch, free uint64) {
	d.free.Store(free)
	r.mu.Lock()
	r.readAt = time.Time{}
	r.mu.Unlock()
}

// watchOn returns a disk of 10 GiB with a Watch that keeps so many bytes free.
func watchOn(t *testing.T, free uint64, keep int64) (*disk, *Watch) {
	d := &disk{total: 10 << 30}
	d.free.Store(free)
	r, err := open("/data", keep, d.look)
	require.NoError(t, err)
	return d, r
}

func TestWatch_FullAndBack(t *testing.T) {
	t.Parallel()
	d, r := watchOn(t, 5<<30, 100<<20)
	require.NoError(t, r.Check())
	d.set(r, 100<<20-1)
	require.ErrorIs(t, r.Check(), ErrFull)
	require.ErrorContains(t, r.Check(),
		"/data has 100.0 MiB free of 10.0 GiB, and 100.0 MiB are to stay free: "+
			"make room, or set less with --min-free-disk")
	for _, c := range []struct {
		free uint64
		full bool
	}{
		{110 << 20, true}, // it would go on and off
		{125 << 20, false}, {110 << 20, false},
	} {
		d.set(r, c.free)
		require.Equal(t, c.full, r.Check() != nil)
		require.Equal(t, c.full, r.Full())
	}
	require.Equal(t, messages.Disk{Free: 110 << 20, Total: 10 << 30, Keep: 100 << 20}, r.State())
}

func TestWatch_FailedWriteStays(t *testing.T) {
	t.Parallel()
	_, r := watchOn(t, 5<<30, 0)
	select {
	case <-r.Failed():
		require.Fail(t, "nothing has failed yet")
	default:
	}
	r.Fail("no space left on device")
	r.Fail("and once more")
	<-r.Failed()
	require.ErrorIs(t, r.Check(), ErrFailed)
	require.ErrorContains(t, r.Check(), "no space left on device")
	require.False(t, r.Full(), "there is room, and still nothing can be stored")
}

func TestWatch_Keep(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ total, keep uint64 }{
		{16 << 20, 1 << 20}, {128 << 20, 128 << 20 / 50}, {1 << 40, 256 << 20},
	} {
		r, err := open("/data", 0, (&disk{total: row.total}).look)
		require.NoError(t, err)
		require.Equal(t, row.keep, r.State().Keep)
	}
	_, err := open("/data", 32<<20, (&disk{total: 16 << 20}).look)
	require.ErrorContains(t, err,
		"the disk of /data has 16.0 MiB in all, and 32.0 MiB of it are to stay free")
	r, err := Open(t.TempDir(), 0)
	require.NoError(t, err)
	require.Positive(t, r.State().Total)
	require.LessOrEqual(t, r.State().Free, r.State().Total)
}

// The last reading counts while the disk cannot be read.
func TestWatch_UnreadableDisk(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	d, r := watchOn(t, 1, 0)
	require.ErrorIs(t, r.Check(), ErrFull)
	d.err.Store(&gone)
	d.set(r, 5<<30)
	require.ErrorIs(t, r.Check(), ErrFull)
	_, err := open("/data", 0, d.look)
	require.ErrorIs(t, err, gone)
}

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB",
		256 << 20: "256.0 MiB", 3 << 40: "3.0 TiB",
	} {
		require.Equal(t, want, Size(bytes))
	}
}
