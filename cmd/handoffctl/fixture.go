package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/cmd/internal/counted"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

// fixtureParts are the members of a fixture. Members that are read but not used name the origin of
// a fixture in the test vectors of the agents' library.
type fixtureParts struct {
	Name         string         `json:"name,omitzero"`
	Comment      jsontext.Value `json:"comment,omitzero"`
	SnapshotName jsontext.Value `json:"snapshotName,omitzero"`
	From         jsontext.Value `json:"from,omitzero"`
	Outcome      jsontext.Value `json:"outcome,omitzero"`
	Result       jsontext.Value `json:"result,omitzero"`
	// Handoff and Snapshot are sent as they are; without a snapshot the town stays as it is.
	Handoff  jsontext.Value `json:"handoff"`
	Snapshot jsontext.Value `json:"snapshot,omitzero"`
	// Game is the answer of the town's game, and Approval a person's decision; nil for none.
	Game     *apply.Answer    `json:"game,omitzero"`
	Approval *fixtureDecision `json:"approval,omitzero"`
	Expect   expectation      `json:"expect,omitzero"`
}

// fixtureDecision is a person's decision in a fixture. Without one nobody has decided.
type fixtureDecision struct {
	Decision string `json:"decision,omitzero"` // approve or reject
	ActorID  string `json:"actorId,omitzero"`
	Reason   string `json:"reason,omitzero"`
}

// expectation is the expected answer of a fixture; zero members are not compared.
type expectation struct {
	Status     handoff.Status     `json:"status,omitzero"`
	ReasonCode handoff.ReasonCode `json:"reasonCode,omitzero"`
	// Result is a whole result, in any format.
	Result jsontext.Value `json:"result,omitzero"`
	// ResultBytes are the bytes of a whole result.
	ResultBytes string `json:"resultBytes,omitzero"`
	// Error is the machine code of the refusal that the handoff is expected to get.
	Error string `json:"error,omitzero"`
}

// compares reports whether e expects anything.
func (e *expectation) compares() bool { return e.comparesResult() || e.Error != "" }

func (e *expectation) comparesResult() bool {
	return e.Status != "" || e.ReasonCode != "" || e.Result != nil || e.ResultBytes != ""
}

// fixture is one handoff to replay.
type fixture struct {
	fixtureParts
	file, label string         // the label has the file, the index in it and the name
	element     jsontext.Value // of the file, as it was read
	town        string         // the handoff's town; "" if it cannot be read
	done        *replayed      // nil until it is replayed
}

// loadFixtures reads the fixtures of files. There is one fixture at least.
func loadFixtures(a *app, files []string) ([]fixture, error) {
	var all []fixture
	for _, file := range files {
		data, err := a.read(file)
		if err != nil {
			return nil, err
		}
		found, err := parseFixtures(file, data)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, usagef("there is no fixture in %s", strings.Join(files, ", "))
	}
	return all, nil
}

// parseFixtures reads a file: an array of elements, or one element after another, as JSON Lines
// have them.
func parseFixtures(file string, data []byte) ([]fixture, error) {
	elements, many, err := elementsOf(data)
	if err != nil {
		return nil, usagef("%s is not JSON: %s", file, sentence(err))
	}
	fixtures := make([]fixture, len(elements))
	for i, element := range elements {
		f := &fixtures[i]
		*f = fixture{file: file, label: file, element: element}
		if many {
			f.label = fmt.Sprintf("%s#%d", file, i)
		}
		if err := f.parse(); err != nil {
			return nil, err
		}
	}
	return fixtures, nil
}

// parse reads the element: {handoff, snapshot?, expect?, name?, comment?}, or a handoff by itself.
func (f *fixture) parse() error {
	if f.element.Kind() != '{' {
		return usagef("%s: a fixture is an object, not %s", f.label, short(f.element))
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(f.element, &members, lenient); err != nil {
		return usagef("%s: %v", f.label, err)
	}
	if members["handoff"] != nil {
		if err := f.parseParts(); err != nil {
			return err
		}
	} else {
		_, isHandoff := members["proposal"] // which may have members beyond the contract's
		for _, member := range []string{"expect", "snapshot"} {
			if members[member] != nil && !isHandoff {
				return usagef("%s: a fixture with the member %s needs the member handoff", f.label,
					member)
			}
		}
		f.Handoff = f.element
	}
	var h struct {
		Proposal struct {
			TownID string `json:"townId"`
		} `json:"proposal"`
	}
	if json.Unmarshal(f.Handoff, &h, lenient) == nil {
		f.town = h.Proposal.TownID
	}
	return nil
}

// parseParts reads the members of a fixture that is not a handoff by itself.
func (f *fixture) parseParts() error {
	err := json.Unmarshal(f.element, &f.fixtureParts, lenient, json.RejectUnknownMembers(true))
	if err != nil {
		return usagef("%s: %s", f.label, memberError(err))
	}
	if f.Snapshot.Kind() == 'n' {
		f.Snapshot = nil
	}
	if s := f.Expect.Status; s != "" && !slices.Contains(handoff.Statuses(), s) {
		return usagef("%s: expect: there is no status %q", f.label, s)
	}
	if f.Name != "" {
		f.label += " (" + show(f.Name) + ")"
	}
	decisions := []string{"", messages.Approve, messages.Reject}
	outcomes := []apply.Status{apply.Applied, apply.Refused}
	switch {
	case f.setsOutcome() && f.Snapshot == nil:
		return usagef("%s: a fixture with game or approval needs the member snapshot", f.label)
	case f.Game != nil && !slices.Contains(outcomes, f.Game.Status):
		return usagef("%s: game: the status is applied or refused, not %q", f.label, f.Game.Status)
	case f.Approval != nil && !slices.Contains(decisions, f.Approval.Decision):
		return usagef("%s: approval: the decision is approve or reject, not %q", f.label,
			f.Approval.Decision)
	}
	return nil
}

// setsOutcome reports whether the fixture has the outcome of a game or a person.
func (f *fixture) setsOutcome() bool { return f.Game != nil || f.Approval != nil }

// memberError describes an invalid member of a fixture in words of JSON.
func memberError(err error) string {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return sentence(err)
	}
	path := string(semantic.JSONPointer)
	if errors.Is(err, json.ErrUnknownName) {
		return fmt.Sprintf("there is no member %s: a fixture has the members name, comment, "+
			"handoff, snapshot, game, approval and expect, and expect has status, reasonCode, "+
			"result, resultBytes and error", path)
	}
	kinds := map[jsontext.Kind]string{
		'0': "a number", '"': "a string", 't': "a boolean", 'f': "a boolean",
		'n': "null", '{': "an object", '[': "an array",
	}
	return fmt.Sprintf("%s cannot be %s", orWhole(path), kinds[semantic.JSONKind])
}

// replayed is the outcome of a fixture.
type replayed struct {
	outcome   string       // the result's status, or refusedOutcome if there was no result
	failure   *mismatch    // nil if everything is as expected
	unchecked bool         // the fixture expects nothing
	answered  *expectation // all that could be expected of the answer; nil if there was none
	updated   bool         // the fixture expects the answer from now on
	took      time.Duration
}

// refusedOutcome counts the handoffs that got an error reply.
const refusedOutcome = "refused"

// mismatch has the differences between a fixture's answer and the expected one.
type mismatch struct {
	Fixture  string   `json:"fixture"`
	Expected string   `json:"expected"`
	Got      string   `json:"got"`
	Differs  []string `json:"differs,omitempty"`
}

// judge compares an answer with the expected one. got describes the answer; differs has the details
// of an error reply.
func (f *fixture) judge(answered *expectation, got string, differs []string) *replayed {
	e, r := &f.Expect, &replayed{outcome: refusedOutcome, answered: answered}
	failed := e.Error != answered.Error
	if answered.Error == "" {
		r.outcome, r.unchecked = string(answered.Status), !e.compares()
		differs = e.differences(answered)
		failed = failed || len(differs) > 0 ||
			cmp.Or(e.Status, answered.Status) != answered.Status ||
			cmp.Or(e.ReasonCode, answered.ReasonCode) != answered.ReasonCode
	}
	if failed {
		r.failure = &mismatch{f.label, e.String(), got, differs}
	}
	return r
}

// differences lists the differences between an answer and the whole result that e expects; none if
// e expects no whole result.
func (e *expectation) differences(answered *expectation) []string {
	if e.ResultBytes == "" || e.ResultBytes == answered.ResultBytes {
		return differences(e.Result, answered.Result)
	}
	if found := differences(jsontext.Value(e.ResultBytes), answered.Result); found != nil {
		return found
	}
	return []string{"the bytes of the result: the same values, written in another way"}
}

// String lists the expectations.
func (e *expectation) String() string {
	var parts []string
	for _, part := range []string{string(e.Status), string(e.ReasonCode)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if e.Result != nil {
		parts = append(parts, "the result given")
	}
	if e.ResultBytes != "" {
		parts = append(parts, "the bytes of the result given")
	}
	if e.Error != "" {
		parts = append(parts, "error "+e.Error)
	}
	return cmp.Or(strings.Join(parts, " "), "a result")
}

// maxDifferences bounds how many differences of one result are printed.
const maxDifferences = 8

// differences lists the differences of two JSON values; none if want is nil.
func differences(want, got jsontext.Value) []string {
	if want == nil {
		return nil
	}
	wantTree, err := schemas.Decode(want, schemas.Limits{})
	if err != nil {
		return []string{"the expectation cannot be compared: " + sentence(err)}
	}
	gotTree, err := schemas.Decode(got, schemas.Limits{})
	if err != nil {
		return []string{"the result cannot be compared: " + sentence(err)}
	}
	var found []string
	for _, c := range handoff.Differences(wantTree, gotTree, false) {
		found = append(found, fmt.Sprintf("%s: expected %s, got %s", orWhole(c.Path),
			orNone(c.Before), orNone(c.After)))
	}
	if len(found) > maxDifferences {
		found = append(found[:maxDifferences],
			fmt.Sprintf("and %d more", len(found)-maxDifferences))
	}
	return found
}

// orNone names a value that may be missing.
func orNone(value jsontext.Value) string { return cmp.Or(string(value), "none") }

// recordCommand makes fixtures of the handoffs that a world has judged.
type recordCommand struct {
	Town  string        `help:"Record only the handoffs of this town." placeholder:"ID"`
	RunID string        `name:"run" help:"Record only the handoff of this run." placeholder:"RUN-ID"`
	For   time.Duration `help:"Record only the handoffs that are judged in this time from now on, or until Ctrl-C." placeholder:"DURATION"`
	Out   string        `help:"File to write; standard output by default." placeholder:"FILE"`
}

func (recordCommand) Help() string {
	return `Writes a fixture for each handoff that the world has judged: the handoff, the state of
its town before, and the result byte for byte. handoffctl replay --fresh judges them again. record
leaves out a handoff that a server with the default rules and no game would answer otherwise, and
counts it on standard error: a game or other settings of the rules decided it, or the log no longer
keeps the state before.

Example:

    handoffctl record --town town-threatened --out fixtures.json`
}

func (c *recordCommand) Run(ctx context.Context, a *app) error {
	if err := checkOutput("--out", c.Out); err != nil {
		return err
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	if c.RunID, err = a.runID(ctx, c.RunID, false); err != nil {
		return err
	}
	runIDs, err := c.runIDs(ctx, server)
	if err != nil {
		return err
	}
	if c.For > 0 {
		ctx = context.WithoutCancel(ctx) // an interrupt ends only the wait
	}
	r := &recorder{server: server, seen: map[string]bool{}, leftOut: map[string]int{}}
	for _, runID := range runIDs {
		err := r.record(ctx, runID)
		discarded := client.IsCode(err, wire.CodeUnknownRun) && (c.For > 0 || c.RunID == "")
		if err != nil && !discarded {
			return err
		}
	}
	for _, why := range slices.Sorted(maps.Keys(r.leftOut)) {
		fmt.Fprintf(a.err, "left out: %d, %s\n", r.leftOut[why], why)
	}
	if len(r.fixtures) == 0 && c.For == 0 {
		return failedf("there is nothing to record: the world has judged no such handoff that a " +
			"fresh server would answer in the same way; no file was written")
	}
	text, err := fixtureFile(r.fixtures, false)
	switch {
	case err != nil:
		return fmt.Errorf("a fixture cannot be written: %w", err)
	case c.Out == "":
		_, err := a.out.Write(text)
		return err
	}
	if err := os.WriteFile(c.Out, text, 0o666); err != nil {
		return usagef("--out: %v", err)
	}
	fmt.Fprintf(a.err, "%s in %s\n", counted.Of(len(r.fixtures), "fixture"), c.Out)
	return nil
}

// runIDs returns the ids of the runs to record, the oldest first. With --for it waits first.
func (c *recordCommand) runIDs(
	ctx context.Context, server *client.Client,
) (ids []string, err error) {
	switch {
	case c.For > 0:
		return c.newRunIDs(ctx, server)
	case c.RunID != "":
		return []string{c.RunID}, nil
	}
	all, err := listRuns(ctx, server, messages.RunList{TownID: c.Town, Order: "oldest"}, math.MaxInt)
	for i := range all.Runs {
		ids = append(ids, all.Runs[i].RunID)
	}
	return ids, err
}

// newRunIDs waits, and returns the ids of the runs that had events meanwhile. An interrupt ends the
// wait.
func (c *recordCommand) newRunIDs(
	ctx context.Context, server *client.Client,
) (ids []string, err error) {
	request, page := messages.EventListRequest{TownID: c.Town}, messages.EventListReply{}
	if _, err := server.Ask(ctx, wire.EventList, request, &page); err != nil {
		return nil, err
	}
	_ = backoff.Sleep(ctx, c.For)
	ctx = context.WithoutCancel(ctx)
	for seen := map[string]bool{"": true}; request.After != page.Cursor; {
		request.After, page = page.Cursor, messages.EventListReply{}
		if _, err := server.Ask(ctx, wire.EventList, request, &page); err != nil {
			return nil, err
		}
		for i := range page.Commits {
			if id := page.Commits[i].RunID; !seen[id] && cmp.Or(c.RunID, id) == id {
				seen[id], ids = true, append(ids, id)
			}
		}
	}
	return ids, nil
}

// recorder asks for the fixtures of runs.
type recorder struct {
	server   *client.Client
	seen     map[string]bool // the handoffs that were recorded, by their bytes
	leftOut  map[string]int  // by the reason
	fixtures []*fixtureParts
}

// record records the handoff of a run. Before a duplicate it records the handoff that the duplicate
// repeats.
func (r *recorder) record(ctx context.Context, runID string) error {
	var reply struct {
		Fixtures []*fixtureParts `json:"fixtures"`
		LeftOut  string          `json:"leftOut"`
	}
	request := messages.RunGet{RunID: runID, Fixtures: true}
	_, err := r.server.Ask(ctx, wire.RunGet, request, &reply)
	if err != nil {
		return err
	}
	if reply.LeftOut != "" && reply.LeftOut != runs.ErrNotJudged.Error() {
		r.leftOut[reply.LeftOut]++
	}
	for i, f := range reply.Fixtures {
		if last := len(reply.Fixtures) - 1; i < last && r.seen[string(f.Handoff)] {
			continue
		}
		r.seen[string(f.Handoff)] = true
		f.Name = fmt.Sprintf("%d %s", len(r.fixtures)+1, f.Name)
		r.fixtures = append(r.fixtures, f)
	}
	return nil
}
