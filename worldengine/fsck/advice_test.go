package fsck

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

func TestAdvice(t *testing.T) {
	t.Parallel()
	inLog := Finding{Stream: wire.LogStream("w")}
	receipt := Finding{Stream: wire.ReceiptStream("w")}
	event := Finding{Stream: wire.EventStream("w")}
	letter := Finding{Stream: wire.EventStream("w"), Kind: DeadLettered}
	for name, c := range map[string]struct {
		findings []Finding
		advice   []string
	}{
		"nothing is wrong": {nil, nil},
		"the log alone":    {[]Finding{inLog, inLog}, []string{adviceLog}},
		"both streams":     {[]Finding{event, receipt}, []string{adviceDerived}},
		"a dead letter":    {[]Finding{letter}, []string{adviceDeadLetter}},
		"all, in one order": {
			[]Finding{letter, event, inLog}, []string{adviceLog, adviceDerived, adviceDeadLetter},
		},
	} {
		report := Report{World: "w", Findings: c.findings}
		require.Equal(t, c.advice, report.Advice(), name)
	}
}
