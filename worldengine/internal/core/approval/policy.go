// Package approval decides which proposals a person has to approve before they are carried out. It
// keeps a town's list of the proposals that wait, and of the decisions about them. It is pure.
package approval

import (
	"fmt"
	"slices"
	"strings"

	"worldengine/handoff"
)

// Policy lists the types of proposals that require a person's approval; the zero value has none. A
// stored policy may have types that this version does not know: see Requires.
type Policy struct {
	// Types are in the order of their names, each once.
	Types []handoff.ProposalType `json:"types"`
}

// None is the text of a policy that asks for no approval.
const None = "none"

// Parse reads the text of a policy: None, or known types with commas between them.
func Parse(text string) (Policy, error) {
	p := ParseStored(text)
	if unknown := p.UnknownTypes(); len(unknown) > 0 || text == "" {
		return Policy{}, fmt.Errorf("%q is no type of proposals; the types are %s",
			joined(unknown, ", "), joined(handoff.ProposalTypes(), ", "))
	}
	return p, nil
}

// ParseStored reads the text of a stored policy, perhaps of a later version: a type that this version
// does not know stays in the policy.
func ParseStored(text string) Policy {
	if text == None || text == "" {
		return Policy{}
	}
	var p Policy
	for name := range strings.SplitSeq(text, ",") {
		p.Types = append(p.Types, handoff.ProposalType(strings.TrimSpace(name)))
	}
	p.normalize()
	return p
}

// ParseTree returns the policy of a list of types that a schema has accepted; nil if there is none.
func ParseTree(tree any) *Policy {
	list, ok := tree.([]any)
	if !ok {
		return nil
	}
	p := &Policy{Types: []handoff.ProposalType{}}
	for _, name := range list {
		p.Types = append(p.Types, handoff.ProposalType(name.(string)))
	}
	p.normalize()
	return p
}

// normalize brings the types into the order of their names, each once.
func (p *Policy) normalize() {
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

// Requires reports whether proposals of a type require an approval. If the policy has an unknown
// type, all types do, since the unknown one may be another spelling of any of them.
func (p Policy) Requires(t handoff.ProposalType) bool {
	return slices.Contains(p.Types, t) || len(p.UnknownTypes()) > 0
}

// Inherited returns p, the world's policy, for a town whose own policy is own. It returns nil if
// the town has its own policy, or if p requires no approval.
func (p *Policy) Inherited(own *Policy) *Policy {
	if own != nil || len(p.Types) == 0 {
		return nil
	}
	return p
}

// UnknownTypes returns the types that this version does not know.
func (p Policy) UnknownTypes() []handoff.ProposalType {
	return slices.DeleteFunc(slices.Clone(p.Types), func(t handoff.ProposalType) bool {
		return slices.Contains(handoff.ProposalTypes(), t)
	})
}

// Explain explains why a proposal of a type requires an approval.
func (p Policy) Explain(t handoff.ProposalType) string {
	detail := fmt.Sprintf("%s needs the approval of a person", t)
	if unknown := p.UnknownTypes(); len(unknown) > 0 {
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
