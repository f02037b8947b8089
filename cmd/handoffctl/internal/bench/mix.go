package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"worldengine/handoff"
)

// Mix is what share of the handoffs ends in which status. The shares are relative to their sum.
//
// Executed is a casual talk with the townsfolk, which never exhausts a town; duplicate sends the
// last accepted handoff again; stale was made an epoch ago; rejected asks for a project that is not
// there; failed advances a project that is blocked.
type Mix map[handoff.Status]int

// ParseMix reads STATUS=SHARE,…, such as executed=80,duplicate=10,stale=5,rejected=5.
func ParseMix(text string) (Mix, error) {
	mix := Mix{}
	for _, part := range strings.Split(text, ",") {
		name, share, found := strings.Cut(strings.TrimSpace(part), "=")
		status := handoff.Status(name)
		if !found || !slices.Contains(handoff.Statuses(), status) {
			return nil, fmt.Errorf("bench: a mix is STATUS=SHARE,… with the statuses executed, "+
				"rejected, stale, duplicate and failed, not %q", part)
		}
		n, err := strconv.ParseUint(share, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("bench: the share of %s must be a whole number up to 65535, "+
				"not %q", name,
				share)
		}
		if _, twice := mix[status]; twice {
			return nil, fmt.Errorf("bench: the mix has %s twice", name)
		}
		mix[status] = int(n)
	}
	return mix, nil
}

// String writes the mix as ParseMix reads it, in the order of the contract's statuses.
func (m Mix) String() string {
	var parts []string
	for _, status := range handoff.Statuses() {
		if m[status] > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", status, m[status]))
		}
	}
	return strings.Join(parts, ",")
}

func (m Mix) total() int {
	total := 0
	for _, share := range m {
		total += share
	}
	return total
}

// spread draws the statuses of a mix so that the shares hold all along, without chance (smooth
// weighted round robin).
type spread struct {
	mix    Mix
	credit map[handoff.Status]int
}

func (s *spread) next() handoff.Status {
	if s.credit == nil {
		s.credit = map[handoff.Status]int{}
	}
	var best handoff.Status
	for _, status := range handoff.Statuses() {
		if s.mix[status] == 0 {
			continue
		}
		s.credit[status] += s.mix[status]
		if best == "" || s.credit[status] > s.credit[best] {
			best = status
		}
	}
	s.credit[best] -= s.mix.total()
	return best
}
