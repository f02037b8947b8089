package server

import (
	"worldengine/runevents"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/webhook"
)

// postToWebhooks has alerts, and proposals that begin to wait, posted to the webhooks.
func (s *Server) postToWebhooks(config *Config) (err error) {
	if len(config.Webhook.URLs) == 0 {
		return nil
	}
	of := config.Webhook
	of.World, of.Logger = config.Engine.World, config.Logger
	if s.webhooks, err = webhook.New(of); err != nil {
		return err
	}
	alert, asked := config.Engine.OnAlert, config.Engine.OnAsked
	config.Engine.OnAlert = func(a runevents.Alert) {
		s.webhooks.Alert(a)
		if alert != nil {
			alert(a)
		}
	}
	config.Engine.OnAsked = func(townID string, a *approval.Asked) {
		s.webhooks.Asked(townID, a)
		if asked != nil {
			asked(townID, a)
		}
	}
	return nil
}
