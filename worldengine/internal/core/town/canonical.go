package town

import (
	"cmp"
	"slices"
	"strconv"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town/internal/collation"
)

// Compare orders two texts as the agents' libraries do, by the root collation.
func Compare(a, b string) int { return collation.Compare(a, b) }

// sortQuests puts quests in canonical order: by id, title and complexity (an absent one last).
// Strings compare as package collation says, and the sort is stable.
func sortQuests(quests []SideQuest) {
	sortByID(quests, func(q *SideQuest) string { return q.ID }, func(a, b *SideQuest) int {
		return cmp.Or(collation.Compare(a.Title, b.Title), compareOptional(a.Complexity, b.Complexity))
	})
}

// sortProjects puts projects in canonical order: by id, name, progress and status.
func sortProjects(projects []Project) {
	sortByID(projects, func(p *Project) string { return p.ID }, compareBesideID)
}

// sortByID sorts a list by its ids, then by the rest, stably. It skips a list of one, because the
// first comparison reads the table of package collation, which takes 20 ms.
func sortByID[T any](list []T, id func(*T) string, compareRest func(a, b *T) int) {
	if len(list) < 2 {
		return
	}
	type keyed struct {
		key collation.Key
		i   int // in unsorted
	}
	keys := make([]keyed, len(list))
	memory := make(collation.Key, 0, 16*len(list)) // for all of the keys, if these are short
	for i := range list {
		start := len(memory)
		memory = collation.AppendKey(memory, id(&list[i]))
		keys[i] = keyed{memory[start:], i}
	}
	unsorted := slices.Clone(list)
	slices.SortFunc(keys, func(a, b keyed) int {
		if c := a.key.Compare(b.key); c != 0 {
			return c
		}
		return cmp.Or(compareRest(&unsorted[a.i], &unsorted[b.i]), cmp.Compare(a.i, b.i))
	})
	for i := range keys {
		list[i] = unsorted[keys[i].i]
	}
}

// resortProject restores the canonical order after a change of the project at i. Its order changes
// only if its id collates like a neighbour's, so it is compared with its neighbours first.
func resortProject(projects []Project, i int) {
	ordered := func(a, b *Project) bool {
		if c := collation.Compare(a.ID, b.ID); c != 0 {
			return c < 0
		}
		return compareBesideID(a, b) <= 0
	}
	if i > 0 && !ordered(&projects[i-1], &projects[i]) ||
		i < len(projects)-1 && !ordered(&projects[i], &projects[i+1]) {
		sortProjects(projects)
	}
}

func compareBesideID(a, b *Project) int {
	return cmp.Or(collation.Compare(a.Name, b.Name),
		cmp.Compare(a.Progress, b.Progress),
		collation.Compare(string(a.Status), string(b.Status)))
}

func compareOptional(a, b *float64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*a, *b)
}

// appendCanonical writes the canonical JSON of s, which is in canonical order: names sorted, by
// hand, since every handoff needs it. A test compares it with the general form.
func (s *Snapshot) appendCanonical(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"day":`...), s.Day, 10)
	b = appendOptional(b, `,"latestNetherEvent":`, s.LatestNetherEvent)
	b = append(b, `,"mission":`...)
	if m := s.Mission; m == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, '{')
		if m.Description != nil {
			b = append(handoff.AppendString(append(b, `"description":`...), *m.Description), ',')
		}
		b = handoff.AppendString(append(b, `"id":`...), m.ID)
		if m.Reward != nil {
			b = handoff.AppendNumber(append(b, `,"reward":`...), *m.Reward)
		}
		b = append(handoff.AppendString(append(b, `,"title":`...), m.Title), '}')
	}
	p := &s.Pressure
	b = handoff.AppendNumber(append(b, `,"pressure":{"dread":`...), p.Dread)
	b = handoff.AppendNumber(append(b, `,"hope":`...), p.Hope)
	b = handoff.AppendNumber(append(b, `,"scarcity":`...), p.Scarcity)
	b = handoff.AppendNumber(append(b, `,"threat":`...), p.Threat)
	b = append(b, `},"projects":[`...)
	for i := range s.Projects {
		b = s.Projects[i].appendCanonical(comma(b, i))
	}
	b = handoff.AppendString(append(b, `],"schemaVersion":`...), s.SchemaVersion)
	b = append(b, `,"sideQuests":[`...)
	for i := range s.SideQuests {
		b = s.SideQuests[i].appendCanonical(comma(b, i))
	}
	return append(handoff.AppendString(append(b, `],"townId":`...), s.TownID), '}')
}

func (p *Project) appendCanonical(b []byte) []byte {
	b = handoff.AppendString(append(b, `{"id":`...), p.ID)
	b = handoff.AppendString(append(b, `,"name":`...), p.Name)
	b = handoff.AppendNumber(append(b, `,"progress":`...), p.Progress)
	return append(handoff.AppendString(append(b, `,"status":`...), string(p.Status)), '}')
}

func (q *SideQuest) appendCanonical(b []byte) []byte {
	b = append(b, '{')
	if q.Complexity != nil {
		b = append(handoff.AppendNumber(append(b, `"complexity":`...), *q.Complexity), ',')
	}
	b = handoff.AppendString(append(b, `"id":`...), q.ID)
	return append(handoff.AppendString(append(b, `,"title":`...), q.Title), '}')
}

func appendOptional(b []byte, before string, v *string) []byte {
	b = append(b, before...)
	if v == nil {
		return append(b, "null"...)
	}
	return handoff.AppendString(b, *v)
}

func comma(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ',')
}
