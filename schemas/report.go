package schemas

import (
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
	v := newViolation(r.pointer(), message())
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
	slices.SortFunc(r.found, Violation.compare)
	if r.count <= maxViolations {
		return r.found
	}
	rest := r.count - maxViolations + 1
	r.found[maxViolations-1] = Violation{
		Message: fmt.Sprintf("%d more violations are not listed", rest),
	}
	return r.found
}

// pointer returns the JSON Pointer of r's place.
func (r *report) pointer() string {
	var b strings.Builder
	for _, s := range r.at {
		part := strconv.Itoa(s.index)
		if !s.inArray {
			part = escape(s.name)
		}
		b.WriteString("/" + part)
	}
	return b.String()
}

// newViolation returns a violation, whose path may be too long.
func newViolation(path, message string) Violation {
	if len(path) > maxPath {
		path = path[:strings.LastIndexByte(path[:maxPath+1], '/')]
		message = "in a member whose path is too long to show: " + message
	}
	return Violation{Path: path, Message: message}
}

// number writes f as JSON would.
func number(f float64) string {
	if b, err := json.Marshal(f); err == nil {
		return string(b)
	}
	return fmt.Sprint(f) // NaN or an infinity, which no JSON holds
}
