package access

import (
	"fmt"
	"io"
	"strings"

	"worldengine/worldengine/wire"
)

// Users of the server itself in an external NATS: EngineUser in the world's account, and AskingUser
// in the clients' account, to try at the start that requests cross.
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
		{Name: "agent-1", Role: Agent}, {Name: "plugin-1", Role: Plugin},
		{Name: "operator-1", Role: Operator}, {Name: "approver-1", Role: Approver},
		{Name: "observer-1", Role: Observer},
	}
}

// WriteNATS writes the accounts and permissions of a world, with its users and the server's own, as
// a part of the configuration of a nats-server. Passwords that are not hashed are variables there.
func WriteNATS(w io.Writer, world string, users []User) error {
	engine := User{Name: EngineUser, Role: Engine}
	ours := []string{userBlock(world, &engine, Permissions{All: true})}
	asking := User{Name: AskingUser, Role: Engine}
	theirs := []string{userBlock(world, &asking, Permissions{All: true})}
	for i := range users {
		block := userBlock(world, &users[i], PermissionsOf(world, &users[i]))
		if users[i].Role.Spec().Client {
			theirs = append(theirs, block)
		} else {
			ours = append(ours, block)
		}
	}
	theirs = append(theirs, noOne)
	c := CrossingsOf(world)
	text := "accounts {\n" +
		account(WorldAccount, "    jetstream: enabled\n"+list("exports", exports(c)), ours) +
		account(ClientsAccount, list("imports", imports(c))+mappings(c), theirs) + "}\n"
	_, err := io.WriteString(w, text)
	return err
}

// noOne is a user with an NKey whose seed does not exist, and without any permission. NATS checks
// the "nkey" of a client that signs in with a password only if some user has an NKey; otherwise it
// passes that text on as the name of the user in the mark of a request, and any client could take
// any name.
const noOne = "# Keeps NATS from taking a user's name from an unchecked nkey: do not remove.\n" +
	`      {nkey: "UDFTSDGNOIISYZGMMLRGDPHH5YTVE4NHK7MK3HKXSEQNWXF5NYVUB2LX", permissions: {publish: {deny: ">"}, subscribe: {deny: ">"}}}`

func account(name, members string, users []string) string {
	return "  " + name + " {\n" + members + list("users", users) + "  }\n"
}

func list(name string, elements []string) string {
	return "    " + name + ": [\n      " + strings.Join(elements, "\n      ") + "\n    ]\n"
}

func exports(c Crossings) (lines []string) {
	for _, subject := range c.Shared {
		lines = append(lines, fmt.Sprintf(`{service: %q, accounts: [%s], response_threshold: "%s"}`,
			wire.CrossedSubject(subject), ClientsAccount, AnswerWithin(subject)))
	}
	for _, subject := range c.Services {
		lines = append(lines, fmt.Sprintf(
			`{service: %q, accounts: [%s], response: stream}`, subject, ClientsAccount))
	}
	for _, subject := range c.Heard {
		lines = append(lines, fmt.Sprintf(`{stream: %q, accounts: [%s]}`, subject, ClientsAccount))
	}
	return lines
}

func imports(c Crossings) (lines []string) {
	for _, subject := range c.Shared {
		lines = append(lines,
			fmt.Sprintf(`{service: {account: %s, subject: %q}, to: %q, share: true}`,
				WorldAccount, wire.CrossedSubject(subject), subject))
	}
	for _, subject := range c.Services {
		lines = append(lines, fmt.Sprintf(`{service: {account: %s, subject: %q}}`,
			WorldAccount, subject))
	}
	for _, subject := range c.Heard {
		lines = append(lines, fmt.Sprintf(`{stream: {account: %s, subject: %q}}`,
			WorldAccount, subject))
	}
	return lines
}

func mappings(c Crossings) string {
	var b strings.Builder
	b.WriteString("    mappings: {\n")
	for _, subject := range c.Diverted {
		fmt.Fprintf(&b, "      %q: %q\n", subject, wire.AstraySubject(subject))
	}
	return b.String() + "    }\n"
}

func userBlock(world string, u *User, p Permissions) string {
	who := fmt.Sprintf("user: %q, password: ", u.Name)
	switch {
	case u.NKey != "":
		who = fmt.Sprintf("nkey: %q", u.NKey)
	case u.PasswordHash != "":
		who += `"` + string(u.PasswordHash) + `"`
	default:
		who += "$" + u.PasswordVariable()
	}
	if p.All {
		return "{" + who + "}"
	}
	respond := ""
	if p.Respond {
		respond = fmt.Sprintf("\n        allow_responses: {max: %d, expires: %q}",
			MaxAnswers, AnswersExpire.String())
	}
	return fmt.Sprintf("# %s\n      {%s, permissions: {\n"+
		"        publish: [%s]\n        subscribe: [%s]%s\n      }}",
		u.Role, who, quoted(p.Publish), quoted(p.Subscribe), respond)
}

func quoted(subjects []string) string {
	var b strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&b, "\n          %q", s)
	}
	return b.String() + "\n        "
}
