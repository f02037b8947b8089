package handoffctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/runs"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/cmdline"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// fixtureParts are the members of a fixture. Some members are read and not used: in the test
// vectors of the agents' library, they name the origin of a fixture.
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
	file, label string    // label has the file, the index in the file, and the name
	source      []byte    // the content of the file
	town        string    // the handoff's town; "" if it cannot be read
	done        *replayed // nil until it is replayed
}

// loadFixtures reads the fixtures of files, of which each has an array of fixtures, or one after
// another as JSON Lines have them. There is one fixture at least.
func loadFixtures(a *app, files []string) (all []fixture, err error) {
	for _, file := range files {
		data, err := a.read(file)
		if err != nil {
			return nil, err
		}
		elements, many, err := elementsOf(data)
		if err != nil {
			return nil, usagef("%s is not JSON: %s", file, sentence(err))
		}
		for i, element := range elements {
			f := fixture{file: file, label: file, source: data}
			if many {
				f.label = fmt.Sprintf("%s#%d", file, i)
			}
			if err := f.parse(element); err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil, usagef("there is no fixture in %s", strings.Join(files, ", "))
	}
	return all, nil
}

// parse reads an element of a file: {handoff, snapshot?, expect?, name?, comment?}, or a handoff by
// itself.
func (f *fixture) parse(element jsontext.Value) error {
	if element.Kind() != '{' {
		return usagef("%s: a fixture is an object, not %s", f.label, short(element))
	}
	switch in := unwrap(element); {
	case in.Handoff != nil:
		if err := f.parseParts(element); err != nil {
			return err
		}
	case in.Expect != nil || in.Snapshot != nil: // --update would rewrite it as a handoff
		return usagef("%s: a fixture with the member expect or snapshot needs the member handoff",
			f.label)
	default:
		f.Handoff = element
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
func (f *fixture) parseParts(element jsontext.Value) error {
	err := json.Unmarshal(element, &f.fixtureParts, lenient, json.RejectUnknownMembers(true))
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		return usagef("%s: the member %s is unknown or has the wrong type: handoffctl replay --help "+
			"has the members of a fixture", f.label, orWhole(string(semantic.JSONPointer)))
	}
	if err != nil {
		return usagef("%s: %s", f.label, sentence(err))
	}
	if f.Snapshot.Kind() == 'n' {
		f.Snapshot = nil
	}
	if f.Name != "" {
		f.label += " (" + show(f.Name) + ")"
	}
	switch {
	case f.setsOutcome() && f.Snapshot == nil:
		return usagef("%s: a fixture with game or approval needs the member snapshot", f.label)
	case f.Approval != nil && !slices.Contains([]string{"", "approve", "reject"}, f.Approval.Decision):
		return usagef("%s: approval: the decision is approve or reject, not %q", f.label, f.Approval.Decision)
	case f.Game != nil && f.Game.Status != apply.Applied && f.Game.Status != apply.Refused:
		return usagef("%s: game: the status is applied or refused, not %q", f.label, f.Game.Status)
	}
	return nil
}

// setsOutcome reports whether the fixture has the outcome of a game or a person.
func (f *fixture) setsOutcome() bool { return f.Game != nil || f.Approval != nil }

// replayed is the outcome of a fixture.
type replayed struct {
	outcome   string    // the result's status, refusedOutcome for an error, or "" if the handoff was not sent
	failure   *mismatch // nil if everything is as expected
	unchecked bool      // the fixture expects nothing
	// met is an expectation that the answer meets. changes are the differences between the fixture's
	// own expectation and met. Without an answer, both are nil.
	met     *expectation
	changes []handoff.Difference
	updated bool // the fixture expects the answer from now on
	took    time.Duration
}

// refusedOutcome is the outcome of a handoff that got an error reply.
const refusedOutcome = "refused"

// mismatch has the differences between a fixture's answer and the expected one.
type mismatch struct {
	Fixture  string   `json:"fixture"`
	Expected string   `json:"expected"`
	Got      string   `json:"got"`
	Differs  []string `json:"differs,omitempty"`
	// FirstByte is the first difference of the result's bytes, if the fixture expects bytes.
	FirstByte *firstByte `json:"firstByte,omitzero"`
}

// judge compares an answer with the expected one. got describes the answer; details has the details
// of an error reply.
func (f *fixture) judge(answered *expectation, got string, details []string) *replayed {
	r := &replayed{outcome: refusedOutcome, met: f.Expect.meeting(answered)}
	r.changes = f.Expect.changes(r.met)
	if answered.Error == "" {
		r.outcome, r.unchecked = string(answered.Status), !f.Expect.compares()
		if f.Expect.comparesResult() {
			details = linesOfChanges(r.changes)
		}
	}
	if !r.unchecked && len(r.changes) > 0 {
		r.failure = &mismatch{Fixture: f.label, Expected: f.Expect.String(), Got: got, Differs: details}
		if f.Expect.ResultBytes != "" && answered.ResultBytes != "" {
			r.failure.FirstByte = firstByteOf(f.Expect.ResultBytes, answered.ResultBytes)
		}
	}
	return r
}

// meeting returns an expectation that an answer meets. It has the result's members that e has or,
// if e has none, those that handoffctl record writes.
func (e *expectation) meeting(answered *expectation) *expectation {
	met := *answered
	if answered.Error == "" && e.comparesResult() {
		met.Status = ifExpected(e.Status, met.Status)
		met.ReasonCode = ifExpected(e.ReasonCode, met.ReasonCode)
		met.ResultBytes = ifExpected(e.ResultBytes, met.ResultBytes)
	}
	met.Result = ifExpected(e.Result, met.Result)
	return &met
}

// ifExpected returns the answered value if some value is expected, else none.
func ifExpected[T ~string | ~[]byte](expected, answered T) (none T) {
	if len(expected) == 0 {
		return none
	}
	return answered
}

// changes returns the differences of two expectations. The bytes of a result are compared as JSON,
// and as text if that shows no difference.
func (e *expectation) changes(met *expectation) []handoff.Difference {
	found := handoff.Differences(e.tree(true), met.tree(true), false)
	if found == nil {
		found = handoff.Differences(e.tree(false), met.tree(false), false)
	}
	return found
}

// tree returns the expectation as a JSON tree; as a text if it has invalid JSON. If parse is set,
// the bytes of a result also become a tree.
func (e *expectation) tree(parse bool) any {
	data, _ := json.Marshal(e, lenient) // no error: it has only texts, and JSON that was read
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err != nil {
		return string(data)
	}
	if bytes, err := schemas.Decode([]byte(e.ResultBytes), schemas.Limits{}); parse && err == nil {
		tree.(map[string]any)["resultBytes"] = bytes
	}
	return tree
}

// String lists the expectations.
func (e *expectation) String() string {
	parts := strings.Fields(string(e.Status) + " " + string(e.ReasonCode))
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

// linesOfChanges returns a line for each old and each new value.
func linesOfChanges(changes []handoff.Difference) (lines []string) {
	for _, c := range changes {
		if c.Before != nil {
			lines = append(lines, "- "+c.Path+": "+string(c.Before))
		}
		if c.After != nil {
			lines = append(lines, "+ "+c.Path+": "+string(c.After))
		}
	}
	return lines
}

// orNone names a value that may be missing.
func orNone(value jsontext.Value) string { return cmp.Or(string(value), "none") }

// recordCommand makes fixtures of the handoffs that a world has judged.
type recordCommand struct {
	Town  string        `help:"Record only the handoffs of this town." placeholder:"ID" xor:"town"`
	RunID string        `name:"run" help:"Record only the handoff of this run, whose town it names too." placeholder:"RUN-ID" xor:"town,time"`
	For   time.Duration `help:"Record only the handoffs that are judged in this time from now on, or until Ctrl-C." placeholder:"DURATION" xor:"time"`
	Out   outputFile    `help:"File to write; standard output by default." placeholder:"FILE"`
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
	if err := c.Out.write(text); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s in %s\n", cmdline.Counted(len(r.fixtures), "fixture"), c.Out)
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
	all, err := first(server.Runs(ctx, messages.RunList{TownID: c.Town, Order: "oldest"}), 0)
	for i := range all {
		ids = append(ids, all[i].RunID)
	}
	return ids, err
}

// newRunIDs waits, and returns the ids of the runs that had events meanwhile. An interrupt ends the
// wait.
func (c *recordCommand) newRunIDs(
	ctx context.Context, server *client.Client,
) (ids []string, err error) {
	request := messages.EventListRequest{TownID: c.Town}
	page, err := server.EventList(ctx, request)
	if err != nil {
		return nil, err
	}
	_ = backoff.Sleep(ctx, c.For)
	ctx = context.WithoutCancel(ctx)
	for seen := map[string]bool{"": true}; request.After != page.Cursor; {
		request.After = page.Cursor
		if page, err = server.EventList(ctx, request); err != nil { // an interrupt could not end a retry
			return nil, err
		}
		for i := range page.Commits {
			if id := page.Commits[i].RunID; !seen[id] {
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
