package access

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nkeys"

	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/kit/secret"
	"worldengine/worldengine/wire"
)

// ConfigName names the shape of an access file in errors.
const ConfigName schemas.Name = "access"

// Config is who may connect, and how.
type Config struct {
	// TLS is how the embedded NATS server encrypts; with its zero value, nothing is encrypted.
	TLS   TLS
	Users []User
}

// TLS are the files of a TLS server.
type TLS struct {
	// CertFile and KeyFile are the server's certificate and its key.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// ClientCAFile has the authorities that must have signed a client's certificate; "" if clients
	// need none.
	ClientCAFile string `json:"clientCAFile"`
}

// maxFile bounds an access file and each file that it names: 4 MiB are some 20,000 users.
const maxFile = 4 << 20

// ReadFile reads an access file, and the files and environment variables that it names. File names
// are relative to its directory; lookup is os.LookupEnv. No error contains a secret.
func ReadFile(file string, lookup func(string) (string, bool)) (Config, error) {
	data, err := platform.ReadFile(file, maxFile)
	if err != nil {
		return Config{}, fmt.Errorf("access: the file cannot be read: %w", err)
	}
	cfg, err := parse(data, filepath.Dir(file), lookup)
	if err != nil {
		return Config{}, fmt.Errorf("access: the file %s is wrong: %w", file, err)
	}
	return cfg, nil
}

// document is an access file.
type document struct {
	TLS   *TLS   `json:"tls"`
	Users []User `json:"users"`
}

// notNull refuses null, which would otherwise count as a missing member, such as "all towns".
var notNull = json.UnmarshalFromFunc(func(in *jsontext.Decoder, _ any) error {
	if in.PeekKind() == jsontext.KindNull {
		return errors.New("null is not allowed: leave the member out")
	}
	return errors.ErrUnsupported // continues as without this function
})

func parse(data []byte, dir string, lookup func(string) (string, bool)) (Config, error) {
	var file document
	if err := json.Unmarshal(data, &file, json.RejectUnknownMembers(true),
		json.WithUnmarshalers(notNull)); err != nil {
		return Config{}, schemas.Unread(ConfigName, err)
	}
	r := reader{Members: schemas.Members{Schema: ConfigName}, dir: dir, lookup: lookup}
	cfg := Config{Users: file.Users}
	if file.TLS != nil {
		cfg.TLS = r.tls(*file.TLS)
	}
	if len(cfg.Users) == 0 {
		r.Add("/users", "must be a list of at least one user")
	}
	for i := range cfg.Users {
		r.user(&cfg.Users[i], schemas.Pointer("users", i))
	}
	r.unique(cfg.Users)
	return cfg, r.Err()
}

// reader checks an access file, and reads the files and the variables that it names.
type reader struct {
	schemas.Members
	dir    string
	lookup func(string) (string, bool)
}

// path returns a file relative to the directory of the access file.
func (r *reader) path(file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(r.dir, file)
}

// tls returns t with the paths of its files, and tries the files.
func (r *reader) tls(t TLS) TLS {
	if t.CertFile == "" || t.KeyFile == "" {
		r.Add("/tls", "must have certFile and keyFile")
		return t
	}
	t = TLS{r.path(t.CertFile), r.path(t.KeyFile), r.path(t.ClientCAFile)}
	if _, err := t.Config(); err != nil {
		r.Add("/tls", "must name files that TLS can use: %s", err)
	}
	return t
}

// reserved is the prefix of the names of the server's own users; no other user's name may begin with it.
const reserved = "handoffd-"

var userName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (r *reader) user(u *User, at string) {
	if !userName.MatchString(u.Name) || strings.HasPrefix(u.Name, reserved) {
		r.Add(at+"/name", "must be 1 to 64 of A-Z a-z 0-9 _ - and not start with %s", reserved)
	}
	if !slices.Contains(protocol.Roles(), u.Role) {
		r.Add(at+"/role", "must be one of %v", protocol.Roles())
	}
	for _, bound := range []struct {
		name string
		to   []string
		has  func(protocol.RoleSpec) bool
	}{
		{"worlds", u.Worlds, func(s protocol.RoleSpec) bool { return s.Worlds }},
		{"towns", u.Towns, func(s protocol.RoleSpec) bool { return s.Towns }},
		{"actors", u.Actors, func(s protocol.RoleSpec) bool { return s.Actors }},
		{"read", u.Read, func(s protocol.RoleSpec) bool { return s.Read }},
	} {
		switch {
		case bound.to == nil:
		case !bound.has(protocol.LookupRole(u.Role)):
			roles := slices.DeleteFunc(protocol.Roles(), func(r wire.Role) bool { return !bound.has(protocol.LookupRole(r)) })
			r.Add(at+"/"+bound.name, "is only for users of the roles %v", roles)
		case len(bound.to) == 0 || slices.Contains(bound.to, ""):
			// An empty list could be taken for "none", although a missing list means "all".
			r.Add(at+"/"+bound.name, "must be a list of non-empty strings; leave it out for all")
		}
	}
	for i, world := range u.Worlds {
		if world != "" && !worldPattern.MatchString(world) {
			r.Add(at+schemas.Pointer("worlds", i), "must be a world's name, 1 to 64 of "+
				"A-Z a-z 0-9 _ -, or its beginning with * at the end")
		}
	}
	r.credentials(u, at)
}

// bcryptHash is a bcrypt hash of a cost of at least 10.
var bcryptHash = regexp.MustCompile(`^\$2[aby]\$(1[0-9]|2[0-9]|3[01])\$[./A-Za-z0-9]{53}$`)

// credentials checks that a user has exactly one credential beside its tokens, and reads a password.
func (r *reader) credentials(u *User, at string) {
	credentials := []string{u.NKey, string(u.PasswordHash), u.PasswordEnv, u.PasswordFile}
	credentials = slices.DeleteFunc(credentials, func(s string) bool { return s == "" })
	if len(credentials) != 1 && (len(credentials) != 0 || len(u.Tokens) == 0) {
		r.Add(at, "must have one of nkey, passwordHash, passwordEnv and passwordFile, or tokens alone")
	}
	r.tokens(u, at)
	if u.NKey != "" && !nkeys.IsValidPublicUserKey(u.NKey) {
		r.Add(at+"/nkey", "must be the public NKey of a user, which starts with U")
	}
	if u.PasswordHash != "" && !bcryptHash.MatchString(string(u.PasswordHash)) {
		r.Add(at+"/passwordHash", "must be a bcrypt hash with a cost of at least 10, "+
			"and never a password: handoffd password makes one")
	}
	if u.PasswordEnv != "" {
		value, _ := r.lookup(u.PasswordEnv)
		u.Password = r.password(at+"/passwordEnv", value)
	}
	if u.PasswordFile != "" {
		data, err := platform.ReadFile(r.path(u.PasswordFile), maxFile)
		if err != nil {
			r.Add(at+"/passwordFile", "must be a file that can be read: %s", err)
			return
		}
		u.Password = r.password(at+"/passwordFile", strings.TrimRight(string(data), "\r\n"))
	}
}

// minPassword is the least length of a password in bytes.
const minPassword = 12

func (r *reader) password(at, value string) secret.Text {
	if len(value) < minPassword || strings.HasPrefix(value, "$2") ||
		strings.ContainsAny(value, "\x00\r\n") {
		r.Add(at, "must lead to a password of at least %d bytes on one line, which is no bcrypt "+
			"hash",
			minPassword)
	}
	return secret.Text(value)
}

// unique refuses two users with the same name, key or token.
func (r *reader) unique(users []User) {
	type place struct{ member, id string }
	first := map[place]int{}
	check := func(user int, id string, member string, index ...any) {
		if other, repeated := first[place{member, id}]; repeated && id != "" {
			path := schemas.Pointer(append([]any{"users", user, member}, index...)...)
			r.Add(path, "must be unique, but %s has it too", schemas.Pointer("users", other))
		}
		first[place{member, id}] = user
	}
	for i := range users {
		check(i, users[i].Name, "name")
		check(i, users[i].NKey, "nkey")
		for n, hash := range users[i].Tokens {
			check(i, string(hash), "tokens", n)
		}
	}
}
