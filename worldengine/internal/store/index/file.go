package index

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The file has frames: the first one names format and world, and each other one is a row. A frame
// is the length of its payload, a CRC-32C of length and payload, and the payload. All numbers are
// little-endian. A row is its fields, and its labels, which are separated by line feeds.
const (
	frameHead  = 8
	maxPayload = 1 << 20
	labelsSize = 80 // bytes that the labels of a row often have
)

var fieldsSize = binary.Size(rowFields{})

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendFrame(b, payload []byte) []byte {
	begin := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(b[begin:], castagnoli), castagnoli, payload)
	return append(binary.LittleEndian.AppendUint32(b, sum), payload...)
}

// readFrame reads a frame; the payload is valid until the next call with the same buffer.
func readFrame(r io.Reader, buffer *[]byte) (payload []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int(binary.LittleEndian.Uint32(head[:]))
	if size > maxPayload {
		return nil, errors.New("too long")
	}
	if size > cap(*buffer) {
		*buffer = make([]byte, size)
	}
	payload = (*buffer)[:size]
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, err
	}
	sum := crc32.Update(crc32.Checksum(head[:4], castagnoli), castagnoli, payload)
	if sum != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errors.New("wrong checksum")
	}
	return payload, nil
}

// encode appends the payload of a row.
func (e *entry) encode(b []byte) []byte {
	b, _ = binary.Append(b, binary.LittleEndian, &e.rowFields) // all members have a fixed size
	b = append(append(append(b, e.town...), '\n'), e.actor...)
	for _, label := range e.texts() {
		b = append(append(b, '\n'), *label...)
	}
	return b
}

// decode reads a payload, and reports whether it is a row.
func (e *entry) decode(payload []byte) bool {
	if _, err := binary.Decode(payload, binary.LittleEndian, &e.rowFields); err != nil {
		return false
	}
	rest := string(payload[fieldsSize:])
	next := func() (text string) {
		text, rest, _ = strings.Cut(rest, "\n")
		return text
	}
	e.town, e.actor = next(), next()
	for _, label := range e.texts() {
		*label = next()
	}
	return true
}

// file is the file of an index. It has the first rows of a state, or all.
type file struct {
	path, head string
	state      *state // whose rows the file has; nil if the file must be written anew
	rows       uint32
	size       int64
}

func newFile(dir, world string) *file {
	return &file{path: filepath.Join(dir, "rows"), head: "worldengine index 5 " + world}
}

// errForeign: the file is of another world or format, or its beginning is damaged.
var errForeign = errors.New("damaged, or of another world or format")

// read reads the file up to its first bad frame; rest is the number of bytes from there on. If the
// file cannot be used, the error is the reason.
func (f *file) read() (s *state, rest int64, err error) {
	in, err := os.Open(f.path)
	if err != nil {
		return nil, 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, 0, err
	}
	s, good, err := readRows(in, f.head, info.Size())
	if err != nil {
		return nil, 0, err
	}
	f.state, f.rows, f.size = s, s.count, good
	return s, info.Size() - good, nil
}

// readRows returns the state in the frames of a file before the first bad one, and the length of
// these frames. size is the length of the file.
func readRows(r io.Reader, head string, size int64) (*state, int64, error) {
	in, buffer := bufio.NewReaderSize(io.LimitReader(r, size), 1<<20), make([]byte, 1<<10)
	payload, err := readFrame(in, &buffer)
	if err != nil || string(payload) != head {
		return nil, 0, fmt.Errorf("%w: it begins %q, not %q", errForeign, payload, head)
	}
	s, good := newState(size/int64(frameHead+fieldsSize+labelsSize)), int64(frameHead+len(head))
	for {
		var e entry
		payload, err := readFrame(in, &buffer)
		if err != nil || !e.decode(payload) || e.Seq <= s.position {
			return s, good, nil
		}
		s.insert(&e)
		good += int64(frameHead + len(payload))
	}
}

// flush writes the rows of s that the file lacks: all rows if the file has another state's rows, or
// if somebody deleted the file. view is a copy of s.
func (f *file) flush(s *state, view state) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return err
	}
	if f.state != s || info.Size() < f.size {
		f.state, f.rows, f.size = s, 0, 0
	}
	if info.Size() > f.size { // another state's rows, or the part of a write that failed
		if err := out.Truncate(f.size); err != nil {
			return err
		}
	}
	return f.append(out, &view)
}

func (f *file) append(out io.Writer, view *state) error {
	if f.rows == view.count && f.size > 0 {
		return nil
	}
	rows, size, buffered := f.rows, f.size, bufio.NewWriterSize(out, 64<<10)
	var payload, frame []byte
	write := func(payload []byte) {
		frame = appendFrame(frame[:0], payload)
		size += int64(len(frame))
		_, _ = buffered.Write(frame) // Flush returns the error
	}
	if size == 0 {
		write([]byte(f.head))
	}
	for ; rows < view.count; rows++ {
		e := view.entry(view.row(rows + 1))
		payload = e.encode(payload[:0])
		write(payload)
	}
	err := buffered.Flush()
	if err == nil {
		f.rows, f.size = rows, size
	}
	return err
}

// setAside renames the file.
func (f *file) setAside(seq uint64) (path string, err error) {
	path = fmt.Sprintf("%s.lost-%d", f.path, seq)
	f.state = nil
	return path, os.Rename(f.path, path)
}
