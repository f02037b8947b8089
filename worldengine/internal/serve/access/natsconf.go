package access

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"text/template"
	"time"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// Users of the server itself in an external NATS: EngineUser in the world's account, and AskingUser
// in the clients' account. At the start the server tries as AskingUser whether requests cross.
const (
	EngineUser = reserved + "engine"
	AskingUser = reserved + "asking"
)

// PasswordVariable returns the environment variable that stands for the password of a user in the
// configuration of WriteNATS.
func (u *User) PasswordVariable() string {
	if u.PasswordEnv != "" {
		return u.PasswordEnv
	}
	return strings.ToUpper(strings.ReplaceAll(u.Name, "-", "_")) + "_PASSWORD"
}

// Examples returns a user of each role, for a server without an access file.
func Examples() []User {
	return []User{
		{Name: "agent-1", Role: wire.Agent}, {Name: "plugin-1", Role: wire.Plugin},
		{Name: "operator-1", Role: wire.Operator}, {Name: "approver-1", Role: wire.Approver},
		{Name: "observer-1", Role: wire.Observer},
	}
}

//go:embed natsconf.tmpl
var natsConfText string

// natsConf is a part of the configuration of a nats-server. Its last user has an NKey whose seed
// does not exist, and no permission: NATS checks the "nkey" of a client that signs in with a
// password only if some user has an NKey. Otherwise NATS marks the client's requests with that text
// as the user's name, and a client could take any name.
var natsConf = template.Must(template.New("natsconf.tmpl").Funcs(template.FuncMap{
	"crossed": layout.ImportedSubject, "astray": layout.DivertedSubject, "answerTimeout": AnswerTimeout,
	"maxAnswers":    func() int { return MaxAnswers },
	"answersExpire": func() time.Duration { return AnswerWindow },
}).Parse(natsConfText))

// natsUser is a user in natsConf.
type natsUser struct {
	Permissions
	Role  wire.Role
	Login string
}

// natsAccounts are the values of natsConf.
type natsAccounts struct {
	Imports
	Limits
	World, Clients []natsUser
}

// Limits bound the clients' account. Its zero value sets no bounds.
type Limits struct{ MaxConnections, MaxPayload int }

// WriteAccounts writes accounts without users, as a part of the configuration of a nats-server.
func WriteAccounts(w io.Writer, imports Imports, limits Limits) error {
	return natsConf.Execute(w, natsAccounts{Imports: imports, Limits: limits})
}

// WriteNATS writes the accounts and permissions of worlds, with their users and the server's own, as
// a part of the configuration of a nats-server. Passwords that are not hashed are variables there.
func WriteNATS(w io.Writer, worlds []string, users []User) error {
	conf := natsAccounts{
		Imports: AllImports(),
		World:   []natsUser{natsUserOf(worlds, &User{Name: EngineUser, Role: wire.Engine})},
		Clients: []natsUser{natsUserOf(worlds, &User{Name: AskingUser, Role: wire.Engine})},
	}
	for i := range users {
		if users[i].OnlyTokens() {
			continue
		}
		if user := natsUserOf(worlds, &users[i]); protocol.LookupRole(user.Role).Client {
			conf.Clients = append(conf.Clients, user)
		} else {
			conf.World = append(conf.World, user)
		}
	}
	return natsConf.Execute(w, conf)
}

func natsUserOf(worlds []string, u *User) natsUser {
	login := fmt.Sprintf("user: %q, password: ", u.Name)
	switch {
	case u.NKey != "":
		login = fmt.Sprintf("nkey: %q", u.NKey)
	case u.PasswordHash != "":
		login += `"` + string(u.PasswordHash) + `"`
	default:
		login += "$" + u.PasswordVariable()
	}
	return natsUser{Permissions: PermissionsOf(worlds, u), Role: u.Role, Login: login}
}
