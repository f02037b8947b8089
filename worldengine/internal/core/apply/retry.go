package apply

import (
	"cmp"
	"time"
)

// RetryPolicy bounds the attempts of plugins and consoles to apply a command. Its members are flags of
// handoffd. A zero value means the default, which stands after the semicolon.
type RetryPolicy struct {
	// Deadline bounds one logical attempt; 10 s.
	Deadline time.Duration `help:"Time limit of one attempt to apply a command." default:"10s"`
	// Attempts is the number of logical attempts before the handoff fails; 3.
	Attempts int64 `help:"Number of attempts to apply a command before its handoff fails." default:"3"`
	// Backoff is the pause before the second attempt; it doubles with each; 1 s.
	Backoff time.Duration `help:"Pause before the second attempt; it doubles with each." default:"1s"`
	// Resend is the silence after which an attempt sends its request again; 2 s. The methods name what else it paces.
	Resend time.Duration `help:"Silence after which the engine sends a plugin the same request again." default:"2s"`
	// Absence is the policy for commands while no plugin is subscribed; AbsenceWait.
	Absence AbsencePolicy `name:"absent" help:"Policy for a command while its town has no plugin, or no console that can be reached: it waits until one is there (wait), or fails after its attempts (fail)." enum:"wait,fail" default:"wait"`
}

// RereadInterval is the interval at which a command's town is read again.
func (p *RetryPolicy) RereadInterval() time.Duration { return p.Resend }

// RecheckInterval is the interval at which a command that waits looks whether it still has to.
func (p *RetryPolicy) RecheckInterval() time.Duration { return p.Resend }

// MaxLoginInterval is the longest interval between two logins to a console.
func (p *RetryPolicy) MaxLoginInterval() time.Duration { return p.Resend }

// AdoptInterval is the interval at which a command without an execution is adopted.
func (p *RetryPolicy) AdoptInterval() time.Duration { return p.Resend }

// AbsenceAlertDelay is how long a game is absent before an alert says so.
func (p *RetryPolicy) AbsenceAlertDelay() time.Duration { return p.Resend }

// AbsencePolicy is the policy for a command whose town has no plugin.
type AbsencePolicy string

const (
	// AbsenceWait: the attempt's time stands still until a plugin is there. The run can be cancelled
	// meanwhile.
	AbsenceWait AbsencePolicy = "wait"
	// AbsenceFail: the attempts run out, and the handoff fails with PLUGIN_UNAVAILABLE.
	AbsenceFail AbsencePolicy = "fail"
)

// AbsenceGrace is the least time that an attempt has left when an absent plugin returns; 0 if an
// absence does not prolong the attempt.
func (p *RetryPolicy) AbsenceGrace() time.Duration {
	if p.Absence == AbsenceWait {
		return p.Deadline
	}
	return 0
}

// WithDefaults returns the policy with the defaults of its zero members.
func (p RetryPolicy) WithDefaults() RetryPolicy {
	p.Deadline = cmp.Or(p.Deadline, 10*time.Second)
	p.Attempts = cmp.Or(p.Attempts, 3)
	p.Backoff = cmp.Or(p.Backoff, time.Second)
	p.Resend = cmp.Or(p.Resend, 2*time.Second)
	p.Absence = cmp.Or(p.Absence, AbsenceWait)
	return p
}

// maxRetryInterval bounds the pause between two attempts.
const maxRetryInterval = time.Minute

// BackoffAfter is the pause after an attempt, counted from 1.
func (p *RetryPolicy) BackoffAfter(attempt int64) time.Duration {
	pause := p.Backoff
	for ; attempt > 1 && pause < maxRetryInterval; attempt-- {
		pause *= 2
	}
	return min(pause, maxRetryInterval)
}
