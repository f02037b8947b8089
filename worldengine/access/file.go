package access

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"worldengine/schemas"
	"worldengine/worldengine/platform"
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
	CertFile, KeyFile string
	// ClientCAFile has the authorities that must have signed a client's certificate; "" if clients
	// need none.
	ClientCAFile string
}

// maxFile bounds an access file and each file that it names: 4 MiB are some 20,000 users.
const maxFile = 4 << 20

// ReadFile reads an access file, and the files and environment variables that it names. File names
// are relative to its directory; lookup is os.LookupEnv. The error of an invalid file is a
// *schemas.ValidationError. No error holds a secret.
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

func parse(data []byte, dir string, lookup func(string) (string, bool)) (Config, error) {
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err != nil {
		return Config{}, err
	}
	r := reader{
		Members: schemas.Members{
			File: ConfigName, Passwords: "passwordHash, passwordEnv or passwordFile",
		},
		dir: dir, lookup: lookup,
	}
	o := r.Object(tree, "", "tls", "users")
	cfg := Config{TLS: r.tls(o)}
	list, ok := o["users"].([]any)
	if o != nil && (!ok || len(list) == 0) {
		r.Add("/users", "must be a list of at least one user")
	}
	for i, element := range list {
		cfg.Users = append(cfg.Users, r.user(element, schemas.Pointer("users", i)))
	}
	r.unique(cfg.Users)
	return cfg, r.Err()
}

// tls reads the names of the TLS files, and tries the files.
func (r *reader) tls(o map[string]any) TLS {
	if _, given := o["tls"]; !given {
		return TLS{}
	}
	m := r.Object(o["tls"], "/tls", "certFile", "keyFile", "clientCAFile")
	t := TLS{
		CertFile:     r.path(r.Text(m, "/tls", "certFile", true)),
		KeyFile:      r.path(r.Text(m, "/tls", "keyFile", true)),
		ClientCAFile: r.path(r.Text(m, "/tls", "clientCAFile", false)),
	}
	if t.CertFile != "" && t.KeyFile != "" {
		if _, err := t.Config(); err != nil {
			r.Add("/tls", "must name files that TLS can use: %s", err)
		}
	}
	return t
}

// reserved begins the names of the server's own users; no other user's name may begin with it.
const reserved = "handoffd-"

var userName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (r *reader) user(v any, at string) User {
	o := r.Object(v, at, "name", "role", "nkey", "passwordHash", "passwordEnv", "passwordFile",
		"towns", "actors", "read")
	if o == nil {
		return User{}
	}
	u := User{
		Name: r.Text(o, at, "name", true), Role: Role(r.Text(o, at, "role", true)),
		NKey: r.Text(o, at, "nkey", false), PasswordEnv: r.Text(o, at, "passwordEnv", false),
		PasswordHash: schemas.Secret(r.Text(o, at, "passwordHash", false)),
		Towns:        r.texts(o, at, "towns"), Actors: r.texts(o, at, "actors"),
		Read: r.texts(o, at, "read"),
	}
	if u.Name != "" && (!userName.MatchString(u.Name) || strings.HasPrefix(u.Name, reserved)) {
		r.Add(at+"/name", "must be 1 to 64 of A-Z a-z 0-9 _ - and not start with %s", reserved)
	}
	if u.Role != "" && !slices.Contains(Roles(), u.Role) {
		r.Add(at+"/role", "must be one of %v", Roles())
	}
	for _, bound := range []struct {
		name string
		to   []string
		has  func(wire.RoleSpec) bool
	}{
		{"towns", u.Towns, func(s wire.RoleSpec) bool { return s.Towns }},
		{"actors", u.Actors, func(s wire.RoleSpec) bool { return s.Actors }},
		{"read", u.Read, func(s wire.RoleSpec) bool { return s.Read }},
	} {
		if len(bound.to) > 0 && !bound.has(u.Role.Spec()) {
			roles := slices.DeleteFunc(Roles(), func(r Role) bool { return !bound.has(r.Spec()) })
			r.Add(at+"/"+bound.name, "is only for users of the roles %v", roles)
		}
	}
	r.credentials(o, at, &u)
	return u
}

// bcryptHash is a bcrypt hash of a cost of at least 10.
var bcryptHash = regexp.MustCompile(`^\$2[aby]\$(1[0-9]|2[0-9]|3[01])\$[./A-Za-z0-9]{53}$`)

// credentials checks that a user has exactly one credential, and reads a password.
func (r *reader) credentials(o map[string]any, at string, u *User) {
	given := 0
	for _, name := range []string{"nkey", "passwordHash", "passwordEnv", "passwordFile"} {
		if _, ok := o[name]; ok {
			given++
		}
	}
	if given != 1 {
		r.Add(at, "must have one of nkey, passwordHash, passwordEnv and passwordFile")
	}
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
	if file := r.Text(o, at, "passwordFile", false); file != "" {
		data, err := platform.ReadFile(r.path(file), maxFile)
		if err != nil {
			r.Add(at+"/passwordFile", "must be a file that can be read: %s", err)
			return
		}
		u.Password = r.password(at+"/passwordFile", strings.TrimRight(string(data), "\r\n"))
	}
}

// minPassword is the least length of a password in bytes.
const minPassword = 12

func (r *reader) password(at, value string) schemas.Secret {
	if len(value) < minPassword || strings.HasPrefix(value, "$2") ||
		strings.ContainsAny(value, "\x00\r\n") {
		r.Add(at, "must lead to a password of at least %d bytes on one line, which is no bcrypt "+
			"hash",
			minPassword)
	}
	return schemas.Secret(value)
}

// unique refuses two users with the same name or key.
func (r *reader) unique(users []User) {
	first := map[string]int{}
	for i := range users {
		for member, id := range map[string]string{"name": users[i].Name, "nkey": users[i].NKey} {
			if j, taken := first[member+id]; taken && id != "" {
				r.Add(schemas.Pointer("users", i, member), "must be unique, but %s has it too",
					schemas.Pointer("users", j))
			}
			first[member+id] = i
		}
	}
}
