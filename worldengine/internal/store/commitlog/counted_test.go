package commitlog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A node that may have its messages and did not count them leaves the question open; one that is offline does not.
func TestRequireCounted(t *testing.T) {
	t.Parallel()
	leader := map[string]uint64{"a": 7}
	for name, c := range map[string]struct {
		nodes         []Node
		before, after map[string]uint64
		open          bool
	}{
		"all count":                         {[]Node{{Name: "a"}, {Name: "b"}}, map[string]uint64{"b": 7}, map[string]uint64{"b": 7}, false},
		"a new leader has not heard a node": {[]Node{{Name: "a"}, {Name: "b", Silent: true}}, nil, nil, true},
		"a node is offline":                 {[]Node{{Name: "a"}, {Name: "b", Offline: true}}, nil, nil, false},
		"a node goes silent meanwhile":      {[]Node{{Name: "a"}, {Name: "b"}}, map[string]uint64{"b": 7}, nil, true},
		"the leader does not count":         {[]Node{{Name: "c"}}, nil, nil, true},
	} {
		err := requireCounted(c.nodes, c.before, leader, c.after)
		if c.open {
			require.ErrorIs(t, err, ErrUncounted, name)
		} else {
			require.NoError(t, err, name)
		}
	}
}
