package schemas

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// check reports the violations of v, the value at rep's place. A value of a wrong type gets only
// the violation about its type.
func (r *rule) check(rep *report, v any) {
	switch {
	case r.never:
		rep.add(notAllowed)
		return
	case r.types != 0 && !r.types.has(v):
		rep.add(func() string { return "must be " + r.typeText + " but is " + r.types.describe(v) })
		return
	case r.only != nil && !slices.Contains(r.only, v):
		rep.add(func() string { return "must be " + r.onlyText })
	}
	switch v := v.(type) {
	case string:
		r.checkString(rep, v)
	case float64:
		r.checkNumber(rep, v)
	case []any:
		r.checkArray(rep, v)
	case map[string]any:
		r.checkObject(rep, v)
	}
	for _, sub := range r.also {
		sub.check(rep, v)
	}
	if r.when != nil {
		r.checkBranch(rep, v)
	}
}

func (r *rule) checkBranch(rep *report, v any) {
	branch := r.otherwise
	if rep.silently(func() { r.when.check(rep, v) }) == 0 {
		branch = r.then
	}
	if branch != nil {
		branch.check(rep, v)
	}
}

func (r *rule) checkString(rep *report, s string) {
	if r.minLength > 0 && utf8.RuneCountInString(s) < r.minLength {
		rep.add(func() string {
			if r.minLength == 1 {
				return "must not be empty"
			}
			return fmt.Sprintf("must have at least %d characters", r.minLength)
		})
	}
	if r.match != nil && !r.match(s) {
		rep.add(func() string { return "must " + r.matchText })
	}
}

// checkNumber is written so that NaN, which no JSON holds, is outside any bounds.
func (r *rule) checkNumber(rep *report, f float64) {
	if r.min.set && !(f >= r.min.value) {
		rep.add(func() string {
			return "must be >= " + number(r.min.value) + " but is " + number(f)
		})
	}
	if r.max.set && !(f <= r.max.value) {
		rep.add(func() string {
			return "must be <= " + number(r.max.value) + " but is " + number(f)
		})
	}
}

func (r *rule) checkArray(rep *report, a []any) {
	if r.maxItems >= 0 && len(a) > r.maxItems {
		rep.add(func() string {
			return fmt.Sprintf("must have at most %d items but has %d", r.maxItems, len(a))
		})
	}
	if r.items == nil {
		return
	}
	for i, v := range a {
		rep.enter(step{index: i, inArray: true})
		r.items.check(rep, v)
		rep.leave()
	}
}

func (r *rule) checkObject(rep *report, o map[string]any) {
	for _, name := range r.required {
		if _, ok := o[name]; !ok {
			rep.addMember(name, required)
		}
	}
	known := 0
	for _, m := range r.members {
		if v, ok := o[m.name]; ok {
			known++
			rep.enter(step{name: m.name})
			m.rule.check(rep, v)
			rep.leave()
		}
	}
	if r.closed && known < len(o) {
		r.reportExtra(rep, o)
	}
}

// reportExtra reports the members of o without a rule, in order, so that the same payload always
// gets the same violations.
func (r *rule) reportExtra(rep *report, o map[string]any) {
	var extra []string
	for name := range o {
		if !slices.ContainsFunc(r.members, func(m member) bool { return m.name == name }) {
			extra = append(extra, name)
		}
	}
	slices.Sort(extra)
	for _, name := range extra {
		rep.addMember(name, notAllowed)
	}
}

func required() string   { return "is required" }
func notAllowed() string { return "is not allowed here" }
