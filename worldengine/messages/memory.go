package messages

import "worldengine/handoff"

// The types of the request and the reply of memory.get, and of the summary in the reply.
const (
	MemoryRequestType = "world-memory-request.v1"
	MemoryContextType = "world-memory-context.v1"
	MemorySummaryType = "town-history-summary.v1"
)

// MemoryGet is the request of memory.get.
type MemoryGet struct {
	Type          string      `json:"type"`
	SchemaVersion int         `json:"schemaVersion"`
	Scope         MemoryScope `json:"scope"`
}

// MemoryScope is a part of a world: a town, or all towns if TownID is nil. There are no factions.
type MemoryScope struct {
	TownID         *string `json:"townId"`
	FactionID      *string `json:"factionId"`
	ChronicleLimit int     `json:"chronicleLimit"`
	HistoryLimit   int     `json:"historyLimit"`
}

// Memory is the reply of memory.get: a world-memory-context.v1.
type Memory struct {
	Type            string         `json:"type"`
	SchemaVersion   int            `json:"schemaVersion"`
	Scope           MemoryScope    `json:"scope"`
	RecentChronicle []MemoryEntry  `json:"recentChronicle"`
	RecentHistory   []MemoryResult `json:"recentHistory"`
	// TownSummary is nil if the scope has no town.
	TownSummary *MemorySummary `json:"townSummary,omitzero"`
}

// MemoryEntry is an executed command, as a villager would tell it.
type MemoryEntry struct {
	RunID     string   `json:"sourceRecordId"`
	EntryType string   `json:"entryType"`
	Message   string   `json:"message"`
	At        int64    `json:"at"` // the decision epoch after it
	TownID    *string  `json:"townId"`
	FactionID *string  `json:"factionId"`
	HandoffID *string  `json:"sourceRefId"`
	Tags      []string `json:"tags"`
}

// MemoryResult is a result of a handoff.
type MemoryResult struct {
	SourceType        string             `json:"sourceType"`
	HandoffID         *string            `json:"handoffId"`
	ProposalType      *string            `json:"proposalType"`
	Command           *string            `json:"command"`
	AuthorityCommands []string           `json:"authorityCommands"`
	Status            handoff.Status     `json:"status"`
	ReasonCode        handoff.ReasonCode `json:"reasonCode"`
	Kind              string             `json:"kind"`
	At                int64              `json:"at"` // the decision epoch after it
	TownID            *string            `json:"townId"`
	Summary           string             `json:"summary"`
}

// MemorySummary is a town's present state, with the number of its results that the log keeps.
// Members for which this engine has no source keep their zero values.
type MemorySummary struct {
	Type                string          `json:"type"`
	SchemaVersion       int             `json:"schemaVersion"`
	TownID              *string         `json:"townId"`
	ChronicleCount      int             `json:"chronicleCount"`
	HistoryCount        int             `json:"historyCount"`
	LastChronicleAt     *int64          `json:"lastChronicleAt"`
	LastHistoryAt       *int64          `json:"lastHistoryAt"`
	Hope                *float64        `json:"hope"`
	Dread               *float64        `json:"dread"`
	MissionID           *string         `json:"activeMajorMissionId"`
	RecentImpacts       int             `json:"recentImpactCount"`
	CrierQueue          int             `json:"crierQueueDepth"`
	ActiveProjects      int             `json:"activeProjectCount"`
	SupportLabel        *string         `json:"activeSupportOrderLabel"`
	SupportType         *string         `json:"activeSupportOrderType"`
	SupportStage        *string         `json:"activeSupportOrderStage"`
	SupportDueDay       *int64          `json:"activeSupportOrderDueDay"`
	SupportDuePhase     *string         `json:"activeSupportOrderDuePhase"`
	SupportOrderManaged bool            `json:"activeSupportOrderAutoManaged"`
	Factions            []string        `json:"factions"`
	Counts              ExecutionCounts `json:"executionCounts"`
}

// ExecutionCounts are the results of each status.
type ExecutionCounts struct {
	Executed  int `json:"executed"`
	Rejected  int `json:"rejected"`
	Stale     int `json:"stale"`
	Duplicate int `json:"duplicate"`
	Failed    int `json:"failed"`
}
