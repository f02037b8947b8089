package apply

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
)

// AnswerVersion is the schemaVersion of every Answer.
const AnswerVersion = "command-applied.v1"

// Status is the state of a command in a plugin's answer. The set is closed.
type Status string

// The statuses. The first two are definite: a plugin repeats such an answer to the same id for
// ever. Only a retryable refusal may change, in the next attempt.
const (
	// Applied: the command is applied, now or before.
	Applied Status = "applied"
	// Refused: the command is not applied, and will not be in this attempt.
	Refused Status = "refused"
	// Busy: the command is not begun. Ask again after RetryAfter.
	Busy Status = "busy"
	// InProgress: the command is begun. Ask again for the outcome.
	InProgress Status = "in-progress"
)

// GameAnswer is a command-applied.v1: the answer of a plugin, or of a console, to a Command.
type GameAnswer struct {
	SchemaVersion string `json:"schemaVersion"`
	ApplyID       string `json:"applyId"`
	Status        Status `json:"status"`
	// ReasonCode (upper-case words) and Message give the reason of Refused, to machines and people.
	ReasonCode string `json:"reasonCode,omitzero"`
	Message    string `json:"message,omitzero"`
	// Retryable says that a new attempt may succeed after Refused.
	Retryable bool `json:"retryable,omitzero"`
	// RetryAfterMs is the pause before the next request, after Busy or InProgress; with 0 the
	// engine chooses it.
	RetryAfterMs int64 `json:"retryAfterMs,omitzero"`
	// Snapshot is the town's true state after Applied, a snapshot.v1; absent if it is the expected
	// state. Like the members below it may be any JSON here: an invalid one must not hide that the
	// command was applied.
	Snapshot jsontext.Value `json:"snapshot,omitzero"`
	// Artifacts is a list of references, each an artifact.v1, to the data that an Applied command
	// left elsewhere. The run's events omit invalid ones.
	Artifacts jsontext.Value `json:"artifacts,omitzero"`
	// Embodiment is how the game embodied an Applied command: {backendHint?, actions?}, for
	// revision 1 of the result. It is never authoritative, and dropped if it has another form.
	Embodiment jsontext.Value `json:"embodiment,omitzero"`
}

// Definite reports whether the answer is the outcome of its attempt.
func (a *GameAnswer) Definite() bool { return a.Status == Applied || a.Status == Refused }

// ReasonUnspecified is the reason code of a refusal without one.
const ReasonUnspecified = "UNSPECIFIED"

// Done answers a command that is applied, with the expected state.
func Done(c *Command) GameAnswer { return answer(c, Applied) }

// Refuse answers a command that is not applied.
func Refuse(c *Command, reasonCode, message string, retryable bool) GameAnswer {
	a := answer(c, Refused)
	a.ReasonCode, a.Message, a.Retryable = reasonCode, message, retryable
	return a
}

// Later answers a command that is not begun (Busy) or not finished (InProgress).
func Later(c *Command, status Status, after time.Duration) GameAnswer {
	a := answer(c, status)
	a.RetryAfterMs = after.Milliseconds()
	return a
}

func answer(c *Command, status Status) GameAnswer {
	return GameAnswer{SchemaVersion: AnswerVersion, ApplyID: c.ApplyID, Status: status}
}

// MarshalWire returns the bytes of the reply.
func (a *GameAnswer) MarshalWire() ([]byte, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("apply: an answer cannot be written: %w", err)
	}
	return data, nil
}

// ParseAnswer reads the reply to the command with applyID. The error is a *schemas.ValidationError,
// also for another command's answer.
func ParseAnswer(data []byte, applyID string, limits schemas.Limits) (GameAnswer, error) {
	var a GameAnswer
	if err := handoff.Read(schemas.CommandApplied, data, limits, &a); err != nil {
		return GameAnswer{}, err
	}
	if a.ApplyID != applyID {
		return GameAnswer{}, schemas.Invalid(schemas.CommandApplied, schemas.Violation{
			Path: schemas.Pointer("applyId"), Message: "must be that of the request, " + applyID,
		})
	}
	for _, value := range []*jsontext.Value{&a.Snapshot, &a.Artifacts, &a.Embodiment} {
		if value.Kind() == 'n' {
			*value = nil // null is absent
		}
	}
	if a.Status == Refused {
		a.ReasonCode = cmp.Or(a.ReasonCode, ReasonUnspecified)
	}
	return a, nil
}

// Artifacts are the references in StepCompleted to data that the command left elsewhere.
type Artifacts struct {
	References []jsontext.Value `json:"artifacts,omitzero"`
	// LeftOut counts the items of the plugin's list that are invalid, or too many; anything but a list is one.
	LeftOut int `json:"artifactsLeftOut,omitzero"`
}

// Bounds of the artifacts that the engine keeps of one command.
const (
	maxArtifacts    = 64
	maxArtifactSize = 1024 // bytes
)

// artifactsOf returns the artifacts of a plugin's list that the engine keeps. It counts the others:
// an invalid item must not hide that the command was applied.
func artifactsOf(list jsontext.Value) (kept Artifacts) {
	var items []jsontext.Value
	if len(list) == 0 {
		return kept
	}
	if json.Unmarshal(list, &items) != nil {
		return Artifacts{LeftOut: 1}
	}
	for _, item := range items {
		_, err := schemas.Parse(schemas.Artifact, item, schemas.Limits{Bytes: maxArtifactSize})
		if err != nil || len(kept.References) == maxArtifacts {
			kept.LeftOut++
			continue
		}
		kept.References = append(kept.References, item)
	}
	return kept
}
