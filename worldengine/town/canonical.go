package town

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"

	"worldengine/handoff"
)

// collators hands out collators of the CLDR root table; one is not safe for concurrent use.
var collators = sync.Pool{New: func() any { return collate.New(language.Und) }}

// sortQuests puts quests in canonical order: by id, title and complexity (an absent one last).
// Strings compare by the Unicode Collation Algorithm with the CLDR root table, and the sort is
// stable.
func sortQuests(quests []SideQuest) {
	collator := collators.Get().(*collate.Collator)
	defer collators.Put(collator)
	slices.SortStableFunc(quests, func(a, b SideQuest) int {
		if c := collator.CompareString(a.ID, b.ID); c != 0 {
			return c
		}
		return cmp.Or(collator.CompareString(a.Title, b.Title),
			absentLast(a.Complexity, b.Complexity))
	})
}

// sortProjects puts projects in canonical order: by id, name, progress and status.
func sortProjects(projects []Project) {
	collator := collators.Get().(*collate.Collator)
	defer collators.Put(collator)
	slices.SortStableFunc(projects, func(a, b Project) int { return compareProjects(collator, &a, &b) })
}

// resortProject puts projects, of which only the one at i has changed, in canonical order again.
// Ids are unique but may collate as equal, and then the progress counts: rarely, so its neighbours
// are asked first.
func resortProject(projects []Project, i int) {
	collator := collators.Get().(*collate.Collator)
	inOrder := (i == 0 || compareProjects(collator, &projects[i-1], &projects[i]) <= 0) &&
		(i == len(projects)-1 || compareProjects(collator, &projects[i], &projects[i+1]) <= 0)
	collators.Put(collator)
	if !inOrder {
		sortProjects(projects)
	}
}

func compareProjects(collator *collate.Collator, a, b *Project) int {
	if c := collator.CompareString(a.ID, b.ID); c != 0 {
		return c
	}
	return cmp.Or(collator.CompareString(a.Name, b.Name),
		cmp.Compare(a.Progress, b.Progress),
		collator.CompareString(string(a.Status), string(b.Status)))
}

func absentLast(a, b *float64) int {
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
// hand, since this is on the path of every handoff. A test holds it against the general form.
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
