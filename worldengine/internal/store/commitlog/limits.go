package commitlog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrLogLimited means that somebody has given the stream of a log a limit at which NATS deletes records that the
// world needs. Remove the limit.
var ErrLogLimited = errors.New("commitlog: the stream of the log has a limit, at which NATS deletes the " +
	"oldest records: towns would lose their states and accepted keys")

// CheckLimits returns ErrLogLimited if the stream of a log has a limit, other than the lengths of its
// histories, at which NATS deletes records. At a limit with DiscardNew it refuses new ones instead.
func CheckLimits(config jetstream.StreamConfig) error {
	var limits, remedies []string
	add := func(is bool, remedy string, format string, value any) {
		if is {
			limits, remedies = append(limits, fmt.Sprintf(format, value)), append(remedies, remedy)
		}
	}
	deletes := config.Discard != jetstream.DiscardNew
	add(deletes && config.MaxBytes > 0, "--max-bytes=-1", "%d bytes", config.MaxBytes)
	add(deletes && config.MaxMsgs > 0, "--max-msgs=-1", "%d messages", config.MaxMsgs)
	add(config.MaxAge > 0, "--max-age=0", "%s of age", config.MaxAge)
	if limits == nil {
		return nil
	}
	return fmt.Errorf("%w: %s has the limit %s: remove it with nats stream edit %s %s, then run handoffctl "+
		"fsck, which says what is lost; handoffctl world settings set history-per-town=N bounds histories instead",
		ErrLogLimited, config.Name, strings.Join(limits, ", "), config.Name, strings.Join(remedies, " "))
}
