package commitlog

// LostMessage is a message of a town that cannot be read.
type LostMessage struct {
	Sequence uint64 `json:"sequence"`
	Reason   string `json:"reason"`
	// Delivered reports that NATS delivers the message: its bytes can be read at its sequence.
	Delivered bool `json:"delivered,omitzero"`
	// RunID and Day are what the headers of the message say, as far as it is delivered.
	RunID string `json:"runId,omitzero"`
	Day   string `json:"day,omitzero"`
}

// Mended is the part of a record of kind mend that names what it restores and what it puts aside:
// every message of its subject between Restores and the record itself.
type Mended struct {
	Restores uint64        `json:"restores"` // the log sequence of the record that holds the state
	Lost     []LostMessage `json:"lost"`     // the first of the messages that are put aside
}
