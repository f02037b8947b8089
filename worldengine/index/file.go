package index

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The file begins with a frame of tag headTag, which names format and world. Each row has a frame
// of tag rowTag. Right before the first row with a name stands the name's frame; its tag is its
// class. A frame is the length of its payload, with the tag in the high byte; a CRC-32C of these
// and the payload; and the payload. All numbers are little-endian.
const (
	rowTag    = classes
	headTag   = classes + 1
	frameHead = 8
	tagShift  = 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendFrame(b []byte, tag int, payload []byte) []byte {
	begin := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(tag)<<tagShift|uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(b[begin:], castagnoli), castagnoli, payload)
	return append(binary.LittleEndian.AppendUint32(b, sum), payload...)
}

// readFrame reads a frame; the payload is valid until the next call with the same buffer.
func readFrame(r io.Reader, buffer *[]byte) (tag int, payload []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	word := binary.LittleEndian.Uint32(head[:])
	size := int(word & (1<<tagShift - 1))
	if size > cap(*buffer) {
		*buffer = make([]byte, size)
	}
	payload = (*buffer)[:size]
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	sum := crc32.Update(crc32.Checksum(head[:4], castagnoli), castagnoli, payload)
	if sum != binary.LittleEndian.Uint32(head[4:]) {
		return 0, nil, errors.New("wrong checksum")
	}
	return int(word >> tagShift), payload, nil
}

// file is the file of an index; it has the first rows and names of a state.
type file struct {
	path, head string
	*os.File
	state   *state // whose rows the file has; nil if the file must be written anew
	rows    uint32
	named   [classes]uint32
	failing bool
}

func newFile(dir, world string) *file {
	return &file{path: filepath.Join(dir, "rows"), head: "worldengine index 2 " + world}
}

// open reads the file up to its first bad frame and cuts off the rest. If the file cannot be used,
// the error is the reason, and the state is nil.
func (f *file) open() (s *state, cut int64, err error) {
	if f.File, err = os.OpenFile(f.path, os.O_RDWR|os.O_APPEND, 0); err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	s, good, err := readRows(f, f.head, info.Size()/(frameHead+rowSize))
	if err == nil {
		err = f.Truncate(good)
	}
	if err != nil {
		return nil, 0, err
	}
	f.state, f.rows = s, s.count
	for class := range f.named {
		f.named[class] = uint32(len(s.names[class].names) - 1)
	}
	return s, info.Size() - good, nil
}

// readRows returns the state in a file up to its first bad frame or unfinished row, and the length
// of that part. It makes room for the expected number of rows.
func readRows(r io.Reader, head string, expected int64) (*state, int64, error) {
	in, buffer := bufio.NewReaderSize(r, 1<<20), make([]byte, 1<<10)
	tag, payload, err := readFrame(in, &buffer)
	if err != nil || tag != headTag || string(payload) != head {
		return nil, 0, fmt.Errorf("damaged, or of another world or format: it begins %q, "+
			"not %q", payload, head)
	}
	s, good := newState(expected), int64(frameHead+len(head))
	read := good
	var names [classes][]string // since the last row
	for {
		tag, payload, err := readFrame(in, &buffer)
		if err != nil {
			return s, good, nil
		}
		read += int64(frameHead + len(payload))
		switch {
		case tag < classes:
			names[tag] = append(names[tag], string(payload))
		case tag == rowTag && len(payload) == rowSize:
			var r row
			if err := s.take(&r, payload, names); err != nil {
				return nil, 0, err
			}
			good, names = read, [classes][]string{}
		default:
			return s, good, nil
		}
	}
}

// take adds a row of the file with the names that are new in it.
func (s *state) take(r *row, payload []byte, names [classes][]string) error {
	if _, err := binary.Decode(payload, binary.LittleEndian, r); err != nil {
		return err
	}
	for class, n := range r.numbers() {
		d := &s.names[class]
		grown := len(d.names) + len(names[class])
		for _, name := range names[class] {
			d.number(name, len(d.names))
		}
		if len(d.names) != grown || int(n) >= grown || len(names[class]) > 0 && int(n) != grown-1 {
			return fmt.Errorf("damaged: the row of sequence %d has name %d of %d", r.Seq, n,
				len(d.names)-1)
		}
	}
	if r.Seq <= s.position || *s.insert(*r) != *r {
		return fmt.Errorf("damaged: the row of sequence %d does not fit behind the row of %d",
			r.Seq, s.position)
	}
	return nil
}

// numbers returns the highest number of a name that a row has, for each class of names.
func (r *row) numbers() [classes]uint32 {
	word := max(r.Kind, r.Status, r.ResultStatus, r.Reason, r.Type)
	return [classes]uint32{r.Town, r.Actor, uint32(word)}
}

// flush writes the rows of s that the file lacks. If the file has the rows of another state, flush
// writes all rows into a new file, which replaces the old one. view is a copy of s.
func (f *file) flush(s *state, view state) (err error) {
	defer func() {
		if err != nil {
			f.state = nil
		}
	}()
	if f.state == s {
		return f.append(&view)
	}
	f.close()
	f.state, f.rows, f.named = s, 0, [classes]uint32{}
	if err = os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	if f.File, err = os.Create(f.path + ".new"); err != nil {
		return err
	}
	if _, err = f.Write(appendFrame(nil, headTag, []byte(f.head))); err != nil {
		return err
	}
	if err = f.append(&view); err != nil {
		return err
	}
	f.close() // Some systems cannot rename an open file.
	if err = os.Rename(f.path+".new", f.path); err != nil {
		return err
	}
	f.File, err = os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0)
	return err
}

func (f *file) append(view *state) error {
	out, frames := bufio.NewWriterSize(f, 64<<10), []byte(nil)
	for ; f.rows < view.count; f.rows++ {
		if frames = f.frames(frames[:0], view, view.row(f.rows+1)); len(frames) > 0 {
			if _, err := out.Write(frames); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// frames appends the frames of the names that are new in a row, and the row's.
func (f *file) frames(b []byte, view *state, r *row) []byte {
	for class, n := range r.numbers() {
		for f.named[class] < n {
			f.named[class]++
			b = appendFrame(b, class, []byte(view.names[class].names[f.named[class]]))
		}
	}
	var payload [rowSize]byte
	_, _ = binary.Encode(payload[:], binary.LittleEndian, r) // fails for other sizes only
	return appendFrame(b, rowTag, payload[:])
}

// missing reports whether the file was deleted or replaced.
func (f *file) missing() bool {
	there, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	own, ownErr := f.Stat()
	return err == nil && ownErr == nil && !os.SameFile(there, own)
}

// setAside closes the file, and renames it.
func (f *file) setAside(seq uint64) (path string, err error) {
	path = fmt.Sprintf("%s.lost-%d", f.path, seq)
	f.close()
	f.state = nil
	return path, os.Rename(f.path, path)
}

func (f *file) close() {
	if f.File != nil {
		f.File.Close()
		f.File = nil
	}
}
