package main

import (
	"crypto/rand"
	"fmt"

	"golang.org/x/crypto/bcrypt"
)

// passwordCommand draws a password for a user of an access file.
type passwordCommand struct{}

// hashCost makes a guess take about a tenth of a second.
const hashCost = 11

// Run prints a password and its hash. Neither is kept anywhere.
func (passwordCommand) Run(s streams) error {
	password := rand.Text()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
	if err != nil {
		return fmt.Errorf("password: %w", err)
	}
	_, err = fmt.Fprintf(s.out, "password      %s\npasswordHash  %s\n", password, hash)
	return err
}
