package protocol_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/kit/protocol"
)

// overload.md names the verbs that list a world, and the verbs with each time of AnswerTimeout.
func TestLookupVerb_OverloadPage(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../../docs/overload.md")
	require.NoError(t, err)
	page := string(data)
	lists := regexp.MustCompile(`(?m)^\| of (.*) \| 256;`).FindString(page)
	answers := regexp.MustCompile(`(?m)^\| with an access file: the way back .*$`).FindString(page)
	require.Contains(t, answers, "; others 30 s")
	within := map[string]time.Duration{}
	for _, part := range regexp.MustCompile("(`[^;]*`) ([0-9]+) min").FindAllStringSubmatch(answers, -1) {
		minutes, err := time.ParseDuration(part[2] + "m")
		require.NoError(t, err)
		for verb := range strings.SplitSeq(part[1], ", ") {
			within[verb] = minutes
		}
	}
	for _, verb := range protocol.Verbs() {
		name, spec := "`"+string(verb)+"`", protocol.LookupVerb(verb)
		group, _, _ := strings.Cut(string(verb), ".")
		listed := strings.Contains(lists, name) || strings.Contains(lists, "`"+group+".*`")
		require.Equal(t, spec.Lists, listed, verb)
		require.Equal(t, spec.AnswerTimeout, within[name], verb)
	}
}

// Each verb is an operation, and each code is the error of some operation, with its remedy.
func TestAsyncAPI_IsWhole(t *testing.T) {
	t.Parallel()
	api, declared := schemastest.ReadAsyncAPI(t), map[string]bool{}
	for _, verb := range protocol.Verbs() {
		operation := api.Operations[string(verb)]
		require.Equal(t, "receive", operation.Action, verb)
		require.NotEmpty(t, operation.Reply.Messages, verb)
		for _, reply := range operation.Reply.Messages {
			declared[reply.Name()] = true
		}
	}
	for _, e := range protocol.Errors() {
		name := "error." + string(e.Code)
		require.True(t, declared[name], "no verb answers %s", e.Code)
		require.NotEmpty(t, api.Components.Messages[name].Summary, name)
	}
	for _, name := range []string{"apply", "events", "alerts", "runevents"} {
		require.Equal(t, "send", api.Operations[name].Action, name)
	}
	require.Contains(t, api.Channels, "hosts")
}
