package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
)

// check says what would be served. Whatever is wrong gives exit status 2.
func (c *serveCommand) check(out io.Writer, config *server.Config) error {
	towns, err := server.Check(*config)
	if err != nil {
		return fmt.Errorf("%w: %w", errSettings, err)
	}
	var b strings.Builder
	at := c.Listen
	if c.NATS != "" {
		at = natsconn.WithoutSecrets(c.NATS)
	}
	c.describe(&b, config, at)
	if c.WorldFile != "" {
		fmt.Fprintf(&b, "towns     %d in %s\n", towns, c.WorldFile)
	}
	b.WriteString("the settings are valid; nothing was started\n")
	_, err = io.WriteString(out, b.String())
	return err
}

// describe says what is served, where, and for whom.
func (c *serveCommand) describe(b *strings.Builder, config *server.Config, at string) {
	fmt.Fprintf(b, "world     %s\n", c.World)
	if c.NATS == "" {
		fmt.Fprintf(b, "listening %s (embedded NATS with JetStream)\n", at)
		fmt.Fprintf(b, "data      %s (sync: %s)\n", c.Data, c.Sync)
	} else {
		fmt.Fprintf(b, "joined    %s\n", at)
	}
	fmt.Fprintf(b, "access    %s\n", whoConnects(config))
	fmt.Fprintf(b, "apply     %s\n", whoApplies(config))
}

// whoConnects says who may connect.
func whoConnects(config *server.Config) string {
	switch {
	case config.Access != nil:
		return usersByRole(config.Access.Users) + encryption(config)
	case config.NATS != "":
		return "as that NATS server says; towns and actors are not checked"
	case config.InsecureListen:
		return "everybody may do everything (--insecure-listen)"
	}
	return "everybody on this machine may do everything"
}

func usersByRole(users []access.User) string {
	var counts []string
	for _, role := range access.Roles() {
		n := 0
		for i := range users {
			if users[i].Role == role {
				n++
			}
		}
		if n > 0 {
			counts = append(counts, fmt.Sprintf("%s: %d", role, n))
		}
	}
	return "users by role: " + strings.Join(counts, ", ")
}

func encryption(config *server.Config) string {
	switch {
	case config.NATS != "":
		return ""
	case config.Access.TLS == access.TLS{}:
		return "; no TLS"
	case config.Access.TLS.ClientCAFile != "":
		return "; TLS, clients need a certificate"
	}
	return "; TLS"
}

// permissionsCommand prints what an external NATS server has to be configured with.
type permissionsCommand struct {
	World  string `help:"Name of the world." default:"main"`
	Access string `help:"Access file with the users; a user of each role where it is not given." type:"existingfile"`
}

// Run prints. Passwords are variables there, which the NATS server reads from its environment.
func (c *permissionsCommand) Run(s streams) error {
	if err := worldengine.ValidateWorld(c.World); err != nil {
		return fmt.Errorf("%w: --world: %w", errUsage, err)
	}
	users := access.Examples()
	if c.Access != "" {
		read, err := access.ReadFile(c.Access, os.LookupEnv)
		if err != nil {
			return fmt.Errorf("%w: %w", errSettings, err)
		}
		users = read.Users
	}
	return access.WriteNATS(s.out, c.World, users)
}
