package access

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// written returns what WriteNATS writes, as a nats-server reads it.
func written(t *testing.T, users []User) map[string]map[string]any {
	t.Helper()
	t.Setenv("OPERATOR_ONE_PASSWORD", `"of the operator"`)
	t.Setenv("AGENT_VARIABLE", `"of the agent"`)
	for _, own := range []User{{Name: EngineUser}, {Name: AskingUser}} {
		t.Setenv(own.PasswordVariable(), `"of the server"`)
	}
	var b strings.Builder
	require.NoError(t, WriteNATS(&b, []string{"w"}, users))
	parsed, err := conf.Parse(b.String())
	require.NoError(t, err, b.String())
	accounts := map[string]map[string]any{}
	for name, members := range parsed["accounts"].(map[string]any) {
		accounts[name] = members.(map[string]any)
	}
	return accounts
}

// texts returns a list of the configuration as texts.
func texts(v any) (list []string) {
	for _, element := range v.([]any) {
		list = append(list, element.(string))
	}
	return list
}

// The configuration of a nats-server has every user in the account of its role, with its credential
// of the access file, and exactly the permissions of PermissionsOf.
func TestWriteNATS_Users(t *testing.T) {
	users := []User{
		{Name: "agent-1", Role: wire.Agent, PasswordEnv: "AGENT_VARIABLE", Towns: []string{"Town 1"}},
		{Name: "plugin-1", Role: wire.Plugin, NKey: nkey},
		{Name: "observer-1", Role: wire.Observer, PasswordHash: hash},
		{Name: "operator-one", Role: wire.Operator},
	}
	accounts := written(t, users)
	found := map[string]map[string]any{} // by account and who
	for name, account := range accounts {
		for _, u := range account["users"].([]any) {
			user := u.(map[string]any)
			if n, ok := user["nkey"].(string); ok {
				found[name+" "+n] = user
				continue
			}
			found[name+" "+user["user"].(string)] = user
		}
	}
	require.Len(t, found, 7, "the users, the server's own two, and the one that no one is")
	for i, who := range map[int]string{0: "CLIENTS agent-1", 1: "CLIENTS " + nkey,
		2: "CLIENTS observer-1", 3: "WORLD operator-one"} {
		user := found[who]
		require.NotNil(t, user, who)
		permissions, want := user["permissions"].(map[string]any), PermissionsOf([]string{"w"}, &users[i])
		require.Equal(t, want.Publish, texts(permissions["publish"]), who)
		require.Equal(t, want.Subscribe, texts(permissions["subscribe"]), who)
		require.Equal(t, want.Respond, permissions["allow_responses"] != nil, who)
	}
	require.Equal(t, map[string]any{"max": int64(MaxAnswers), "expires": AnswerWindow.String()},
		found["CLIENTS "+nkey]["permissions"].(map[string]any)["allow_responses"])
	require.Equal(t, "of the agent", found["CLIENTS agent-1"]["password"])
	require.Equal(t, hash, found["CLIENTS observer-1"]["password"])
	require.Equal(t, "of the operator", found["WORLD operator-one"]["password"])
	for _, own := range []string{"WORLD handoffd-engine", "CLIENTS handoffd-asking"} {
		require.NotNil(t, found[own], own)
		require.Nil(t, found[own]["permissions"], own)
	}
}

// Without an access file there is a user of each role to begin with.
func TestExamples(t *testing.T) {
	t.Parallel()
	roles := []wire.Role{wire.Engine} // of the server itself
	for _, u := range Examples() {
		require.Equal(t, string(u.Role)+"-1", u.Name)
		roles = append(roles, u.Role)
	}
	require.ElementsMatch(t, protocol.Roles(), roles)
}
