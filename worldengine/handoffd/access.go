package handoffd

import (
	"fmt"
	"os"

	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
)

// reloadAccess gives the server the users of the access file as it is now. An invalid file changes
// nothing.
func (c *serveCommand) reloadAccess(srv *server.Server, config *server.Config) {
	if c.Access == "" {
		config.Logger.Warn("nothing to read again: there is no access file")
		return
	}
	read, err := access.ReadFile(c.Access, os.LookupEnv)
	var done server.Reloaded
	if err == nil {
		done, err = srv.ReloadAccess(&read)
	}
	if err != nil {
		config.Logger.Error("the access file was not reloaded: users and rights are as before",
			"file", c.Access, "error", err)
		return
	}
	config.Access = srv.Access() // for the server that restart starts
	config.Logger.Info("audit: the access file was reloaded", "file", c.Access, "added", done.Added,
		"removed", done.Removed, "changed", done.Changed, "connectionsEnded", done.Ended)
	if done.TLS {
		config.Logger.Warn("the access file turns TLS on or off, which requires a restart",
			"file", c.Access)
	}
	if c.Server.External.URL != "" {
		config.Logger.Warn("the joined NATS has users and permissions of its own, which did not change: " +
			"handoffd permissions prints them")
	}
}

// permissionsCommand prints the configuration for an external NATS server.
type permissionsCommand struct {
	World  []string `help:"Names of the worlds that exist, for the patterns of users; may be repeated." default:"main"`
	Access string   `help:"Access file with the users; by default one example user of each role." type:"existingfile"`
}

// Validate validates --world.
func (c *permissionsCommand) Validate() error {
	for _, world := range c.World {
		if err := validateWorld(world); err != nil {
			return err
		}
	}
	return nil
}

// Run prints the configuration. Its passwords are variables, which the NATS server reads from its
// environment.
func (c *permissionsCommand) Run(s outputs) error {
	users := access.Examples()
	if c.Access != "" {
		read, err := access.ReadFile(c.Access, os.LookupEnv)
		if err != nil {
			return fmt.Errorf("%w: %w", errSettings, err)
		}
		users = read.Users
	}
	for i := range users {
		for _, pattern := range users[i].Unmatched(c.World) {
			fmt.Fprintf(s.log, "warning: %s of the user %s fits no world of --world, so it allows "+
				"nothing: name the worlds with --world, and print again when one is added\n",
				pattern, users[i].Name)
		}
	}
	return access.WriteNATS(s.out, c.World, users)
}
