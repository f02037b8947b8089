package webhook

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/kit/platform"
)

// Format is the JSON that an address reads.
type Format string

// The formats.
const (
	JSON    Format = "json"
	Discord Format = "discord"
	Slack   Format = "slack"
)

// message is the body in the format json. It has one of Alert and Approval.
type message struct {
	World    string           `json:"world"`
	Text     string           `json:"text"`
	Alert    *runevents.Alert `json:"alert,omitzero"`
	Approval *pendingApproval `json:"approval,omitzero"`
	// Towns are the towns of all alerts like Alert, if there are several.
	Towns []string `json:"towns,omitempty"`
	// Page is the address of the page of the console that shows it; empty without Config.Console.
	Page string `json:"page,omitzero"`
}

// pageOf returns the address of the page of a console that shows a message.
func pageOf(console string, m *message) string {
	world := strings.TrimRight(console, "/") + "/#/=" + m.World
	switch {
	case m.Approval != nil:
		return world + "/approvals?town=" + url.QueryEscape(m.Approval.TownID)
	case m.Alert.RunID != "":
		return world + "/runs/" + url.PathEscape(m.Alert.RunID)
	case m.Alert.TownID != "" && len(m.Towns) == 0:
		return world + "/towns/" + url.PathEscape(m.Alert.TownID)
	}
	return world + "/alerts"
}

// pendingApproval is a proposal that begins to wait for approval.
type pendingApproval struct {
	TownID      string `json:"townId"`
	HandoffID   string `json:"handoffId"`
	HandoffHash string `json:"handoffHash"`
	ActorID     string `json:"actorId"`
	Command     string `json:"command"`
	At          string `json:"at"`
	Expires     string `json:"expires"`
}

// WorldSender posts the messages of one world. It is safe for concurrent use.
type WorldSender struct {
	sender *Sender
	name   string
}

// World returns the poster of a world's messages.
func (s *Sender) World(name string) *WorldSender { return &WorldSender{s, name} }

// Alert posts an alert, perhaps together with alerts of other towns. It never blocks.
func (w *WorldSender) Alert(alert runevents.Alert) {
	if gathers(&alert) {
		w.gather(alert)
		return
	}
	w.sender.post(messageOf(w.name, &alert))
}

func messageOf(world string, alert *runevents.Alert) message {
	return message{World: world, Alert: alert, Text: fmt.Sprintf("%s %s in world %s: %s",
		alert.Severity, alert.Code, world, alert.Message)}
}

// ApprovalRequested posts that a proposal begins to wait for approval. It never blocks.
func (w *WorldSender) ApprovalRequested(townID string, asked *approval.Request) {
	h, err := handoff.Parse(asked.Handoff, schemas.Limits{Bytes: len(asked.Handoff) + 1})
	if err != nil {
		w.sender.config.Logger.Error("a proposal that waits cannot be read", "world", w.name,
			"town", townID, "handoff", asked.HandoffID, "error", err)
		return
	}
	p := &pendingApproval{
		TownID: townID, HandoffID: asked.HandoffID, HandoffHash: asked.HandoffHash,
		ActorID: h.Proposal.ActorID, Command: h.Command,
		At: runevents.Timestamp(asked.At), Expires: runevents.Timestamp(asked.Expires),
	}
	w.sender.post(message{World: w.name, Approval: p, Text: fmt.Sprintf("Town %q of world %s "+
		"waits for an approval until %s: %s, proposed by %q. Decide in the console, or with "+
		"handoffctl approve --world=%s --town=%s %s", townID, w.name, p.Expires, p.Command,
		p.ActorID, w.name, platform.ShellQuote(townID), platform.ShellQuote(p.HandoffID))})
}

// link returns the line of a text that leads to the page, if there is one.
func (m *message) link() string {
	if m.Page == "" {
		return ""
	}
	return "\n" + m.Page
}

// maxText is how many characters a message to Discord may have, and more than a line needs.
const maxText = 2_000

// body returns the message in a format. A name in it mentions nobody.
func (m *message) body(format Format) (body []byte) {
	switch format {
	case Discord:
		text, room := []rune(m.Text), max(1, maxText-len(m.link()))
		if len(text) > room {
			text = append(text[:room-1], '…')
		}
		var mentions struct {
			Parse []string `json:"parse"`
		}
		body, _ = json.Marshal(struct {
			Content  string `json:"content"`
			Mentions any    `json:"allowed_mentions"`
		}{string(text) + m.link(), mentions})
	case Slack:
		text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(m.Text + m.link())
		body, _ = json.Marshal(map[string]string{"text": text})
	case JSON:
		body, _ = json.Marshal(m)
	}
	return body // none of these values lacks JSON
}
