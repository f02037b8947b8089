package runevents

import (
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// RunIDPattern is the regular expression of a runId, which is one token of a subject. The schema of
// an event allows any non-empty text as a runId. The append authority refuses a runId that does not
// match the pattern.
const RunIDPattern = `^[A-Za-z0-9_-]{1,128}$`

var runToken = regexp.MustCompile(RunIDPattern)

// IsRunID reports whether id matches RunIDPattern. It is safe for concurrent use.
func IsRunID(id string) bool { return runToken.MatchString(id) }

// IsID reports whether id is a valid eventId (RunEvents v2.0.1, section 2.1): a UUID v4 in its
// canonical form, which is lower-case hex in five groups. It is safe for concurrent use.
func IsID(id string) bool {
	parsed, err := uuid.Parse(id)
	return err == nil && parsed.Version() == 4 && parsed.Variant() == uuid.RFC4122 &&
		len(id) == len("xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx") && id == strings.ToLower(id)
}
