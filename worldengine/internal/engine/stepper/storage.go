package stepper

import (
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/failpoint"
	"worldengine/worldengine/internal/store/records"
)

// recordStorage is how a record is stored: its priority on its town's or its run's log subject, and the failpoint
// behind it.
type recordStorage struct {
	town      records.TownPriority
	run       records.RunPriority
	failpoint failpoint.Point // "" for none
}

// purposeStorage is how the records of each purpose are stored.
var purposeStorage = map[machine.Purpose]recordStorage{
	machine.PurposeJudgement:    {town: records.TownPriorityHandoff, failpoint: failpoint.Committed},
	machine.PurposeAcceptance:   {town: records.TownPriorityHandoff, failpoint: failpoint.Accepted},
	machine.PurposeReach:        {town: records.TownPriorityAttempt},
	machine.PurposeUnreached:    {town: records.TownPriorityUnreached},
	machine.PurposeNextAttempt:  {town: records.TownPriorityAttempt, failpoint: failpoint.NextAttempt},
	machine.PurposeConclusion:   {town: records.TownPriorityEnd, failpoint: failpoint.Concluded},
	machine.PurposeCancellation: {town: records.TownPriorityEnd, failpoint: failpoint.Cancelled},
	machine.PurposeDecision:     {town: records.TownPrioritySignal, failpoint: failpoint.Committed},
	machine.PurposePause:        {town: records.TownPriorityPause},
	machine.PurposeResume:       {town: records.TownPriorityResume},
	machine.PurposeChange:       {town: records.TownPrioritySignal},
	machine.PurposeSignal:       {}, // on a subject without a bound
	machine.PurposeProgress:     {run: records.RunPriorityStep},
	machine.PurposeRunPause:     {run: records.RunPriorityPause},
	machine.PurposeEndOfWait:    {run: records.RunPriorityEnd},
	machine.PurposeRunClosing:   {run: records.RunPriorityEnd, failpoint: failpoint.RunClosing},
}
