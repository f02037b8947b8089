package runevents

import (
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// MaxRunID bounds a runId in bytes.
const MaxRunID = 256

// IsRunID reports whether the append authority accepts a runId: any text of 1 to MaxRunID bytes without |,
// which separates the fields of an idempotency key (RunEvents v2.0.1, section 3.1). The schema of an event
// has no bound.
func IsRunID(id string) bool {
	return 0 < len(id) && len(id) <= MaxRunID && utf8.ValidString(id) && !strings.Contains(id, "|")
}

// IsID reports whether id is a valid eventId (RunEvents v2.0.1, section 2.1): a UUID v4 in its
// canonical form, which is lower-case hex in five groups. It is safe for concurrent use.
func IsID(id string) bool {
	parsed, err := uuid.Parse(id)
	return err == nil && parsed.Version() == 4 && parsed.Variant() == uuid.RFC4122 &&
		len(id) == len("xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx") && id == strings.ToLower(id)
}
