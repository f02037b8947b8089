package access

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

// ErrWorldForbidden means that the user has no right to the world. The error is the same whether there is
// such a world.
var ErrWorldForbidden = errors.New("access: this user may not use that world")

// worldPattern is the name of a world, or the beginning of such a name with "*" at its end.
var worldPattern = regexp.MustCompile(`^([A-Za-z0-9_-]{1,64}|[A-Za-z0-9_-]{1,63}\*)$`)

// MayUse reports whether the user may use a world: every world if the user has no Worlds.
func (u *User) MayUse(world string) bool { return mayUse(u.Worlds, world) }

func mayUse(patterns []string, world string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		start, isPattern := strings.CutSuffix(pattern, "*")
		return pattern == world || isPattern && strings.HasPrefix(world, start)
	})
}

// worldsIn returns the worlds of the user for the subjects of permissions: layout.AnyWorld for all,
// or the names in Worlds and the existing worlds that fit a pattern there.
func (u *User) worldsIn(existing []string) []string {
	if len(u.Worlds) == 0 {
		return []string{layout.AnyWorld}
	}
	var names []string
	for _, world := range append(u.Worlds[:len(u.Worlds):len(u.Worlds)], existing...) {
		if wire.ValidateWorld(world) == nil && u.MayUse(world) {
			names = append(names, world)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Gains reports whether a pattern of the user fits a world of after that is not among before.
func (u *User) Gains(before, after []string) bool {
	return slices.ContainsFunc(u.worldsIn(after), func(world string) bool {
		return !slices.Contains(u.worldsIn(before), world)
	})
}

// Unmatched returns the patterns of the user that fit none of the existing worlds. Until one does,
// they allow nothing.
func (u *User) Unmatched(existing []string) (patterns []string) {
	for _, pattern := range u.Worlds {
		fits := func(world string) bool { return mayUse([]string{pattern}, world) }
		if strings.HasSuffix(pattern, "*") && !slices.ContainsFunc(existing, fits) {
			patterns = append(patterns, pattern)
		}
	}
	return patterns
}

// World returns nil, or ErrWorldForbidden if the request may not use a world.
func (r Rights) World(world string) error {
	if !mayUse(r.worlds, world) {
		return fmt.Errorf("%w: %q", ErrWorldForbidden, world)
	}
	return nil
}
