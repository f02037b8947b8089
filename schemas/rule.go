package schemas

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// rule is one compiled schema, ready for checking and read-only. Its keywords apply only to values
// of their own type, as in JSON Schema.
type rule struct {
	never     bool   // the schema false
	types     kinds  // 0: any
	typeText  string // "a string or null"
	only      []any  // const or enum: strings, booleans and nil; nil: any
	onlyText  string
	required  []string
	members   []member // by name
	closed    bool     // no members but these
	items     *rule
	maxItems  int // -1: none
	minLength int // -1: none
	match     func(string) bool
	matchText string
	min, max  bound
	also      []*rule // $ref and allOf
	when      *rule   // if, with then and otherwise; each may be nil
	then      *rule
	otherwise *rule
}

type member struct {
	name string
	rule *rule
}

type bound struct {
	set   bool
	value float64
}

// builder turns compiled schemas into rules. Schemas that are referenced twice become one rule.
type builder map[*jsonschema.Schema]*rule

func (b builder) rule(s *jsonschema.Schema) *rule {
	if s == nil {
		return nil
	}
	if r, ok := b[s]; ok {
		return r
	}
	r := &rule{
		never: s.Always != nil && !*s.Always, required: s.Required,
		maxItems: s.MaxItems, minLength: s.MinLength,
		min: newBound(s.Minimum), max: newBound(s.Maximum),
	}
	b[s] = r
	r.types, r.typeText = newKinds(s.Types)
	r.only, r.onlyText = newOnly(s.Constant, s.Enum)
	r.match, r.matchText = newMatch(s.Pattern, s.Format)
	r.closed = s.AdditionalProperties == false
	r.items = b.rule(s.Items2020)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		r.members = append(r.members, member{name, b.rule(s.Properties[name])})
	}
	if s.Ref != nil {
		r.also = append(r.also, b.rule(s.Ref))
	}
	for _, sub := range s.AllOf {
		r.also = append(r.also, b.rule(sub))
	}
	r.when, r.then, r.otherwise = b.rule(s.If), b.rule(s.Then), b.rule(s.Else)
	return r
}

func newBound(r *big.Rat) bound {
	if r == nil {
		return bound{}
	}
	f, exact := r.Float64()
	if !exact {
		panic("schemas: a bound that is no float64: " + r.String())
	}
	return bound{set: true, value: f}
}

// newOnly returns the values that const or enum allow. They are compared with ==, so they may be
// neither numbers, which the compiler keeps as text, nor arrays or objects.
func newOnly(constant, enum []any) ([]any, string) {
	only := constant
	if only == nil {
		only = enum
	}
	if only == nil {
		return nil, ""
	}
	var texts []string
	for _, v := range only {
		switch v := v.(type) {
		case string:
			texts = append(texts, strconv.Quote(v))
		case bool:
			texts = append(texts, strconv.FormatBool(v))
		case nil:
			texts = append(texts, "null")
		default:
			panic(fmt.Sprintf("schemas: a const or enum with %v", v))
		}
	}
	if len(texts) == 1 {
		return only, texts[0]
	}
	return only, "one of " + strings.Join(texts, ", ")
}

// formats has words that help a reader more than the patterns do.
var formats = map[string]string{
	"uuid":      "be a UUID v4 in lower-case text",
	"date-time": "be an RFC 3339 time in UTC such as 2026-02-16T10:00:00Z",
}

func newMatch(re *regexp.Regexp, format string) (func(string) bool, string) {
	if re == nil {
		return nil, ""
	}
	text := formats[format]
	if text == "" {
		text = "match " + re.String()
	}
	if prefix, digits, ok := hexPattern(re.String()); ok {
		return func(s string) bool { return isHex(s, prefix, digits) }, text
	}
	return re.MatchString, text
}

var hexForm = regexp.MustCompile(`^\^([a-z_]*)\[0-9a-f\]\{([1-9][0-9]*)\}\$$`)

// hexPattern takes apart a pattern such as ^handoff_[0-9a-f]{64}$. A handoff is matched with such
// patterns eight times, and isHex takes a tenth of the regular expression's time.
func hexPattern(pattern string) (prefix string, digits int, ok bool) {
	m := hexForm.FindStringSubmatch(pattern)
	if m == nil {
		return "", 0, false
	}
	digits, err := strconv.Atoi(m[2])
	return m[1], digits, err == nil
}

func isHex(s, prefix string, digits int) bool {
	if len(s) != len(prefix)+digits || !strings.HasPrefix(s, prefix) {
		return false
	}
	for _, c := range []byte(s[len(prefix):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
