package placement

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// weight ranks the servers for a world, evenly and differently for each world (rendezvous hashing).
func weight(world, server string) int64 {
	sum := sha256.Sum256([]byte(world + "\x00" + server))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1)
}

// spread says which server is the first for each world.
type spread struct {
	owner  map[string]string   // by world; worlds that no server may serve are missing
	ranked map[string][]ranked // by world, the greatest weight first
	load   map[string]int      // by server
}

type ranked struct {
	server string
	weight int64
}

// newSpread spreads worlds over servers. Each world goes to the server of the greatest weight that
// may serve it. Then worlds move to servers with less, until no server has two more than another
// that may serve one of them: of 60 worlds, weights alone leave the fullest of three servers 30 in
// one case of a hundred. Each move is the one that loses the least weight, so that few worlds move
// when a server comes or goes.
func newSpread(worlds, servers []string, may func(server, world string) bool) *spread {
	s := &spread{map[string]string{}, map[string][]ranked{}, map[string]int{}}
	for _, world := range worlds {
		var all []ranked
		for _, server := range servers {
			if may(server, world) {
				all = append(all, ranked{server, weight(world, server)})
			}
		}
		if len(all) == 0 {
			continue
		}
		slices.SortFunc(all, func(a, b ranked) int {
			return cmp.Or(cmp.Compare(b.weight, a.weight), strings.Compare(a.server, b.server))
		})
		s.ranked[world], s.owner[world] = all, all[0].server
		s.load[all[0].server]++
	}
	for s.moveOne(worlds) {
	}
	return s
}

// moveOne moves one world from a server to one that has at least two less. It reports whether there was
// one.
func (s *spread) moveOne(worlds []string) bool {
	var best struct {
		world, to  string
		less       int
		lostWeight int64
	}
	for _, world := range worlds {
		from := s.owner[world]
		own := slices.IndexFunc(s.ranked[world], func(r ranked) bool { return r.server == from })
		for _, to := range s.ranked[world] {
			less := s.load[from] - s.load[to.server]
			lost := s.ranked[world][own].weight - to.weight
			if less >= 2 && (less > best.less || less == best.less && lost < best.lostWeight) {
				best.world, best.to, best.less, best.lostWeight = world, to.server, less, lost
			}
		}
	}
	if best.less == 0 {
		return false
	}
	s.load[s.owner[best.world]]--
	s.load[best.to]++
	s.owner[best.world] = best.to
	return true
}

// order returns the servers in the order in which they may acquire a world: the first, then the others
// by weight.
func (s *spread) order(world string) []string {
	first, any := s.owner[world]
	if !any {
		return nil
	}
	order := []string{first}
	for _, r := range s.ranked[world] {
		if r.server != first {
			order = append(order, r.server)
		}
	}
	return order
}
