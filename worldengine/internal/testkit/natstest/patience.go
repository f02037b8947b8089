package natstest

import (
	"testing"
	"time"
)

// Patiently tests a deadline that is configured: it calls try with a short time, and with longer ones
// until it returns "". A fault fails with each of them, and a busy machine with the short ones alone.
// try returns its complaint, or "".
func Patiently(t testing.TB, short time.Duration, try func(within time.Duration) (wrong string)) {
	t.Helper()
	var wrong string
	for _, times := range []time.Duration{1, 10, 60} {
		if wrong = try(times * short); wrong == "" {
			return
		}
		t.Logf("within %v: %s", times*short, wrong)
	}
	t.Fatal(wrong)
}
