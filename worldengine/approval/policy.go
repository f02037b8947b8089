// Package approval has what a person has to say yes to before it is carried out: which types of
// proposals, what waits for a decision in a town, and what was decided. It is pure.
package approval

import (
	"fmt"
	"slices"
	"strings"

	"worldengine/handoff"
)

// Policy is which types of proposals take a person's approval; the zero value is none. A policy
// that was stored may name types that this version does not know: see Requires.
type Policy struct {
	// Types are in the order of their names, each once.
	Types []handoff.ProposalType `json:"types"`
}

// None is the text of a policy that asks for no approval.
const None = "none"

// Parse reads the text of a policy: None, or types with commas between them.
func Parse(text string) (Policy, error) {
	if text == None {
		return Policy{}, nil
	}
	return Of(strings.Split(text, ",")...)
}

// Of returns the policy that asks for approval of the types with these names.
func Of(names ...string) (Policy, error) {
	var p Policy
	for _, name := range names {
		t := handoff.ProposalType(strings.TrimSpace(name))
		if !slices.Contains(handoff.ProposalTypes(), t) {
			return Policy{}, fmt.Errorf("worldengine: there is no type of proposals %q to "+
				"approve, but %s",
				name, joined(handoff.ProposalTypes(), ", "))
		}
		p.Types = append(p.Types, t)
	}
	p.order()
	return p, nil
}

// Stored reads the text of a policy that was stored, perhaps by a later version: a type that this
// version does not know stays in the policy.
func Stored(text string) Policy {
	if text == None || text == "" {
		return Policy{}
	}
	var p Policy
	for name := range strings.SplitSeq(text, ",") {
		p.Types = append(p.Types, handoff.ProposalType(strings.TrimSpace(name)))
	}
	p.order()
	return p
}

// FromTree returns the policy of a list of types that a schema has accepted; nil where there is
// none.
func FromTree(tree any) *Policy {
	list, ok := tree.([]any)
	if !ok {
		return nil
	}
	p := &Policy{Types: []handoff.ProposalType{}}
	for _, name := range list {
		p.Types = append(p.Types, handoff.ProposalType(name.(string)))
	}
	p.order()
	return p
}

// order brings the types into the order of their names, each once.
func (p *Policy) order() {
	slices.Sort(p.Types)
	p.Types = slices.Compact(p.Types)
}

// String returns the text that Parse reads.
func (p Policy) String() string {
	if len(p.Types) == 0 {
		return None
	}
	return joined(p.Types, ",")
}

// Requires reports whether proposals of a type take an approval. All do where the policy names a
// type that is not known: it may stand for any of them, such as one that is spelled in another way.
func (p Policy) Requires(t handoff.ProposalType) bool {
	return slices.Contains(p.Types, t) || len(p.Unknown()) > 0
}

// Where returns p, the policy of a world, for a town with a policy of its own, nil for none: nil
// where p does not count there, or asks for no approval.
func (p *Policy) Where(own *Policy) *Policy {
	if own != nil || len(p.Types) == 0 {
		return nil
	}
	return p
}

// Unknown returns the types that this version does not know.
func (p Policy) Unknown() (types []handoff.ProposalType) {
	for _, t := range p.Types {
		if !slices.Contains(handoff.ProposalTypes(), t) {
			types = append(types, t)
		}
	}
	return types
}

// Detail is why a proposal of a type that takes an approval is not carried out without one.
func (p Policy) Detail(t handoff.ProposalType) string {
	detail := fmt.Sprintf("%s needs the approval of a person", t)
	if unknown := p.Unknown(); len(unknown) > 0 {
		detail += fmt.Sprintf(": every type does here, because %s is to be approved, which this "+
			"version of the server does not know", joined(unknown, ", "))
	}
	return detail
}

func joined(types []handoff.ProposalType, separator string) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, separator)
}
