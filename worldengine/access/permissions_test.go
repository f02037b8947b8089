package access

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// A role may ask exactly the verbs that it may publish on.
func TestRightsToVerbsAreThoseToTheirSubjects(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{Agent, Plugin, Operator, Observer} {
		u := &User{Name: "u", Role: role}
		for _, verb := range wire.Verbs() {
			err := Rights{role: role}.Verb(verb)
			subject := wire.Subject("w", verb)
			if err == nil {
				require.Contains(t, PermissionsOf("w", u).Publish, subject, role)
			} else {
				require.ErrorIs(t, err, ErrVerbForbidden)
				require.NotContains(t, PermissionsOf("w", u).Publish, subject, role)
			}
		}
		require.ErrorIs(t, Rights{role: role}.Verb("no.verb"), ErrVerbForbidden)
	}
}
