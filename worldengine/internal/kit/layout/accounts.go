package layout

import (
	"strconv"
	"strings"
)

// ImportedSubject returns the subject on which a request arrives in the world's account, if a client
// has published it on subject. Clients cannot publish there; NATS carries their requests across.
func ImportedSubject(subject string) string { return "clients." + subject }

// DivertedSubject returns a subject without subscribers. NATS diverts to it all that clients publish
// on subject, if they may only receive on subject. "*" in subject becomes "$1", "$2" and so on, as
// NATS mappings require.
func DivertedSubject(subject string) string {
	tokens := strings.Split(subject, ".")
	for i, wildcards := 0, 0; i < len(tokens); i++ {
		if tokens[i] == "*" {
			wildcards++
			tokens[i] = "$" + strconv.Itoa(wildcards)
		}
	}
	return "astray." + strings.Join(tokens, ".")
}

// inboxes are the prefixes of the reply subjects on which the service answers: inboxes, and the
// subjects on which a NATS server returns an answer to another account.
var inboxes = []string{"_INBOX.", userInbox, "_R_."}

// userInbox is the prefix of the inboxes of users that have inboxes of their own.
const userInbox = "_INBOX_"

// InboxPrefix returns the prefix of a user's inboxes in a world with access control. No other
// user can read the replies there.
func InboxPrefix(user string) string { return userInbox + user }

// InboxUser returns the user to whom an inbox belongs; "" if it belongs to no user.
func InboxUser(inbox string) string {
	name, ok := strings.CutPrefix(inbox, userInbox)
	user, _, in := strings.Cut(name, ".")
	if !ok || !in {
		return ""
	}
	return user
}

// IsInbox reports whether the service may answer on a reply subject. On any other subject the answer
// might be read as a command or an event.
func IsInbox(reply string) bool {
	for _, prefix := range inboxes {
		if strings.HasPrefix(reply, prefix) {
			return true
		}
	}
	return false
}
