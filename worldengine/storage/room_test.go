package storage

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// disk is a disk whose free room a test sets.
type disk struct {
	free  atomic.Uint64
	total uint64
	err   atomic.Pointer[error]
}

func (d *disk) look(string) (Disk, error) {
	if err := d.err.Load(); err != nil {
		return Disk{}, *err
	}
	return Disk{Free: d.free.Load(), Total: d.total}, nil
}

// set sets the free room, and makes the Room read it.
func (d *disk) set(r *Room, free uint64) {
	d.free.Store(free)
	r.mu.Lock()
	r.looked = time.Time{}
	r.mu.Unlock()
}

func TestRoomIsRefusedAndComesBack(t *testing.T) {
	t.Parallel()
	d := &disk{total: 10 << 30}
	d.free.Store(5 << 30)
	r, err := open("/data", 100<<20, d.look)
	require.NoError(t, err)
	require.NoError(t, r.Check())

	d.set(r, 100<<20-1)
	err = r.Check()
	require.ErrorIs(t, err, ErrFull)
	require.ErrorContains(t, err,
		"/data has 100.0 MiB free of 10.0 GiB, and 100.0 MiB are to stay free: "+
			"make room, or set less with --min-free-disk")
	d.set(r, 110<<20)
	require.ErrorIs(t, r.Check(), ErrFull,
		"a little more than what is kept is not enough: it would go on and off")
	require.True(t, r.Full())
	d.set(r, 125<<20)
	require.NoError(t, r.Check())
	require.False(t, r.Full())
	d.set(r, 110<<20)
	require.NoError(t, r.Check())
	require.Equal(t, Disk{Free: 110 << 20, Total: 10 << 30}, r.Disk())
}

func TestAFailedWriteStaysFailed(t *testing.T) {
	t.Parallel()
	d := &disk{total: 10 << 30}
	d.free.Store(5 << 30)
	r, err := open("/data", 0, d.look)
	require.NoError(t, err)
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

func TestHowMuchStaysFree(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ total, keep uint64 }{
		{16 << 20, 1 << 20}, {128 << 20, 128 << 20 / 50}, {1 << 40, 256 << 20},
	} {
		d := &disk{total: row.total}
		r, err := open("/data", 0, d.look)
		require.NoError(t, err)
		require.Equal(t, row.keep, r.Keep())
	}
	_, err := open("/data", 32<<20, (&disk{total: 16 << 20}).look)
	require.ErrorContains(t, err,
		"the disk of /data has 16.0 MiB in all, and 32.0 MiB of it are to stay free")
}

func TestADiskThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	d := &disk{total: 10 << 30}
	d.free.Store(1)
	r, err := open("/data", 0, d.look)
	require.NoError(t, err)
	require.ErrorIs(t, r.Check(), ErrFull)
	d.err.Store(&gone)
	d.set(r, 5<<30)
	require.ErrorIs(t, r.Check(), ErrFull, "what was seen last holds")
	_, err = open("/data", 0, d.look)
	require.ErrorIs(t, err, gone)
}

func TestTheRealDisk(t *testing.T) {
	t.Parallel()
	r, err := Open(t.TempDir(), 0)
	require.NoError(t, err)
	require.Positive(t, r.Disk().Total)
	require.LessOrEqual(t, r.Disk().Free, r.Disk().Total)
}

func TestSizesForPeople(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB",
		256 << 20: "256.0 MiB", 3 << 40: "3.0 TiB",
	} {
		require.Equal(t, want, Size(bytes))
	}
}
