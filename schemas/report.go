package schemas

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxViolations bounds the entries of Validate's *ValidationError. If there are more
	// violations, the last entry counts them.
	maxViolations = 50
	// maxPath is the longest path, in bytes. A longer one ends at the last array or object whose
	// path is short enough, and the message says so.
	maxPath = 1024
	farDown = "in a member whose path is too long to show: "
)

// report collects violations and knows its place in the payload. It is for one goroutine.
type report struct {
	at     []step // from the whole payload down
	silent int    // while above 0, add only counts
	count  int
	found  []Violation
}

// step leads from an object to a member, or from an array to an item.
type step struct {
	name    string
	index   int
	inArray bool
}

func newReport() report {
	return report{at: make([]step, 0, 8)} // as deep as the schemas go
}

func (r *report) enter(s step) { r.at = append(r.at, s) }
func (r *report) leave()       { r.at = r.at[:len(r.at)-1] }

// add counts a violation of the value at r's place, and keeps it while there is room. It words only
// those it keeps: a payload may have half as many violations as bytes.
func (r *report) add(message func() string) {
	r.count++
	if r.silent > 0 || len(r.found) == maxViolations {
		return
	}
	path, whole := r.pointer()
	v := Violation{Path: path, Message: message()}
	if !whole {
		v.Message = farDown + v.Message
	}
	if slices.Contains(r.found, v) {
		r.count--
		return
	}
	r.found = append(r.found, v)
}

// addMember adds a violation of a member, which may be missing, of the object at r's place.
func (r *report) addMember(name string, message func() string) {
	r.enter(step{name: name})
	r.add(message)
	r.leave()
}

// silently runs check, and returns the number of its violations, which the report does not keep.
func (r *report) silently(check func()) int {
	before := r.count
	r.silent++
	check()
	r.silent--
	n := r.count - before
	r.count = before
	return n
}

// violations returns the violations by path and then message.
func (r *report) violations() []Violation {
	slices.SortFunc(r.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	if r.count <= maxViolations {
		return r.found
	}
	rest := r.count - maxViolations + 1
	r.found[maxViolations-1] = Violation{
		Message: fmt.Sprintf("%d more violations are not listed", rest),
	}
	return r.found
}

// pointer returns the JSON Pointer of r's place. If that is longer than maxPath it returns the
// pointer of the closest enclosing array or object that is short enough, and false.
func (r *report) pointer() (path string, whole bool) {
	var b strings.Builder
	for _, s := range r.at {
		part := strconv.Itoa(s.index)
		if !s.inArray {
			part = escape(s.name)
		}
		if b.Len()+1+len(part) > maxPath {
			return b.String(), false
		}
		b.WriteString("/" + part)
	}
	return b.String(), true
}

// number writes f as JSON would.
func number(f float64) string {
	if b, err := json.Marshal(f); err == nil {
		return string(b)
	}
	return fmt.Sprint(f) // NaN or an infinity, which no JSON holds
}
