package access

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

// Directory knows the rights of all users. It is safe for concurrent use. A nil Directory, of a
// server without access control, gives all requests all rights.
type Directory struct{ users atomic.Pointer[users] }

// users are the rights of the users by their IDs, and of those in the world's account by their names.
type users struct{ byID, inWorldAccount map[string]Rights }

// NewDirectory returns the directory of the users of an access file.
func NewDirectory(users []User) *Directory {
	d := new(Directory)
	d.Replace(users)
	return d
}

// Replace puts other users into the directory. Requests that it was asked about before keep their
// rights.
func (d *Directory) Replace(all []User) {
	known := users{map[string]Rights{}, map[string]Rights{}}
	for i := range all {
		u := &all[i]
		rights := rightsOf(u)
		known.byID[u.ID()] = rights
		if rights.noRights { // in the clients' account
			rights.noRights, rights.role = false, wire.Operator
			known.inWorldAccount[u.Name] = rights
		}
	}
	d.users.Store(&known)
}

// User returns the name and the role of the user with an ID, "" if it is unknown, and whether the
// user may use a world.
func (d *Directory) User(id, world string) (name string, role wire.Role, may bool) {
	if d == nil {
		return "", "", true
	}
	rights, known := d.users.Load().byID[id]
	return rights.user, rights.role, known && rights.World(world) == nil
}

// Headers are the headers of a request as nats.go decoded them, and the size of their block on the
// wire; 0 without one.
type Headers struct {
	Decoded map[string][]string
	Bytes   int
}

// Readable reports whether the block could be decoded, has well-formed names only, and has nothing that
// nats.go skipped. Otherwise a header might be missing, such as the one that asks for a dry run.
func (h Headers) Readable() bool {
	if h.Bytes == 0 {
		return true
	}
	written, _ := h.written()
	return h.Decoded != nil && h.Bytes <= written &&
		!slices.ContainsFunc(slices.Collect(maps.Keys(h.Decoded)), malformed)
}

// malformed reports whether a name of a header is anything but printable ASCII without a space.
func malformed(name string) bool {
	return strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// written returns the size of the decoded headers in the usual form, and the number of their lines.
func (h Headers) written() (bytes, lines int) {
	bytes = len("NATS/1.0\r\n\r\n")
	for name, values := range h.Decoded {
		for _, value := range values {
			bytes += len(name) + len(": ") + len(value) + len("\r\n")
			lines++
		}
	}
	return bytes, lines
}

// WorldRights returns the rights of a request that was made in the world's account, which only the engine and
// operators use. These are an operator's rights, bounded by the worlds of its user; a mark on the request can
// only reduce them. NATS marks nothing in this account: the user is the owner of the request's inbox, which no
// other user can read.
func (d *Directory) WorldRights(h Headers, inbox string) Rights {
	marks := h.Decoded[layout.UserHeader]
	if d == nil {
		return Rights{}
	}
	if len(marks) > 0 {
		return d.markedRights(marks)
	}
	if rights, known := d.users.Load().inWorldAccount[layout.InboxUser(inbox)]; known {
		return rights
	}
	return Rights{role: wire.Operator}
}

// ClientRights returns the rights of a request that came from the clients' account: the rights of the
// user that its mark names, and none without a mark. certain is false, and there are no rights, if
// the client might have written the mark.
func (d *Directory) ClientRights(h Headers) (_ Rights, certain bool) {
	if d == nil {
		return Rights{}, h.Readable()
	}
	if !h.markAuthentic() {
		return Rights{noRights: true}, false
	}
	return d.markedRights(h.Decoded[layout.UserHeader]), true
}

func (d *Directory) markedRights(marks []string) Rights {
	var mark struct {
		User string `json:"user"`
	}
	if len(marks) != 1 || json.Unmarshal([]byte(marks[0]), &mark) != nil {
		return Rights{noRights: true}
	}
	rights, known := d.users.Load().byID[mark.User]
	if !known {
		return Rights{noRights: true, user: mark.User}
	}
	return rights
}

// Bounds of markAuthentic.
const (
	// maxLines is how many headers a client's request may have, its mark included.
	maxLines = 32
	// statusSlack is the length by which "Status: 503\r\nDescription: \r\n" exceeds " 503 ", rounded
	// up.
	statusSlack = 32
	// minMark is the least length of the server's mark: it has at least the time of the connection,
	// the account, the user, the round trip and the server. maxLines*2 + statusSlack is less.
	minMark = 100
)

// The compiler refuses bounds that leave room for a hidden mark.
const _ = uint(minMark - 1 - 2*maxLines - statusSlack)

// markAuthentic reports whether the server wrote the mark.
//
// The server ends each block with its mark, and removes the client's marks that it finds. It misses
// some that nats.go finds, since nats.go also takes lines that end in LF alone. After an empty line
// nats.go reads nothing, so a client can hide the server's mark and show its own. Or a client can
// end its block with "A:", so that the server's mark becomes a value. So the name of the mark must
// stand in one place only, and the decoded headers must account for the whole block. A line "k:v\n"
// grows by at most 2 bytes when it is written as "k: v\r\n", so maxLines lines have no room for a
// hidden mark.
func (h Headers) markAuthentic() bool {
	for name, values := range h.Decoded {
		if name != layout.UserHeader && strings.Contains(name, layout.UserHeader) {
			return false
		}
		for _, value := range values {
			if strings.Contains(value, layout.UserHeader) {
				return false
			}
		}
	}
	_, lines := h.written()
	return h.Readable() && lines <= maxLines &&
		len(h.Decoded[layout.UserHeader]) <= 1
}
