package town_test

import (
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/town"
)

func TestRules_Validate(t *testing.T) {
	t.Parallel()
	require.NoError(t, town.DefaultRules().Validate())
	require.NoError(t, town.Rules{}.Validate())
	require.NoError(t, town.Rules{ProjectStep: 1, CasualTalk: 1}.Validate())
	for _, bad := range []float64{-0.1, 1.0001, math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, rules := range []town.Rules{
			{ProjectStep: bad}, {SalvageFocused: bad}, {SalvageGeneral: bad},
			{MoraleBoost: bad}, {CasualTalk: bad}, {MissionComplete: town.Amount(bad)},
			{MissionFail: town.Amount(bad)},
		} {
			require.ErrorContains(t, rules.Validate(), "0..1", "%v", rules)
		}
	}
}

// Records from before the amounts of missions have five amounts, and keep their bytes.
func TestRules_RecordsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	for _, record := range []string{
		`{"projectStep":0.2,"salvageFocused":0.1,"salvageGeneral":0.05,"moraleBoost":0.1,"casualTalk":0}`,
		`{"projectStep":0.1,"salvageFocused":0.1,"salvageGeneral":0.05,"moraleBoost":0.1,"casualTalk":0.03,"missionComplete":0}`,
		`{"projectStep":0,"salvageFocused":0,"salvageGeneral":0,"moraleBoost":0,"casualTalk":0,"missionComplete":1,"missionFail":0.2}`,
	} {
		var rules town.Rules
		require.NoError(t, json.Unmarshal([]byte(record), &rules))
		if !strings.Contains(record, "missionFail") {
			require.Equal(t, town.DefaultRules().MissionFail, rules.MissionFail)
		}
		written, err := json.Marshal(&rules)
		require.NoError(t, err)
		require.Equal(t, record, string(written))
	}
}
