package commitlog

import (
	"context"
	"time"
)

// Bounds of a question to NATS about a stream, which it answers within milliseconds or, if the leader of the
// stream has just ended, never. A busy machine may need answerTimeout.
const (
	firstAnswerTimeout = 250 * time.Millisecond
	answerTimeout      = 2 * time.Second
	answerTries        = 7 // in sum some ten seconds
)

// tryTimeout bounds the tries of a question: the first by next, and each after one without an answer by twice as
// much, up to max.
type tryTimeout struct{ next, max time.Duration }

// ask calls question once. unanswered is set if the try, and not ctx, was over before an answer.
func (p *tryTimeout) ask(
	ctx context.Context, question func(ctx context.Context) error,
) (unanswered bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, p.next)
	defer cancel()
	err = question(bounded)
	if unanswered = err != nil && bounded.Err() != nil && ctx.Err() == nil; unanswered {
		p.next = min(2*p.next, p.max)
	}
	return unanswered, err
}

// retryUnanswered asks NATS about a stream, and again if there is no answer: NATS never answers a request that
// came to a leader which then ended, and drops those that come before the next one is elected. So a request
// that changes something must bear being sent several times.
func retryUnanswered(ctx context.Context, question func(ctx context.Context) error) (err error) {
	tries, unanswered := tryTimeout{firstAnswerTimeout, answerTimeout}, true
	for n := 0; n < answerTries && unanswered; n++ {
		unanswered, err = tries.ask(ctx, question)
	}
	return err
}
