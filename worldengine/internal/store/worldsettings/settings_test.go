package worldsettings

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
)

// allGiven has every setting, none at its default.
var allGiven = Settings{
	HistoryPerTown: 7, Binding: apply.Plugin, RequireApproval: "PROJECT_ADVANCE",
	Compress: CompressAll,
}

// Settings read back from a record, and from the configuration that follows it, as they were stored;
// those that were not given have their defaults.
func TestStored(t *testing.T) {
	t.Parallel()
	for _, s := range []Stored{
		{}, {Settings: allGiven}, {Settings: Default(), RestoredTo: 12},
		{Settings: Settings{HistoryPerTown: 30}, MinHistory: 3},
		{Settings: Settings{RequireApproval: approval.None, Compress: CompressAll}},
	} {
		s = s.complete()
		require.Equal(t, s, ReadRecord(&machine.Record{Settings: s.Entries()}))
		config := StreamConfig("w", s.Settings, 1)
		s.Configure(&config)
		require.Equal(t, s, ReadStreamConfig(config))
		require.Equal(t, s.HistoryPerTown, config.MaxMsgsPerSubject)
	}
	require.Equal(t, []machine.Setting{
		{Name: "history-per-town", Value: "7"}, {Name: "apply", Value: "plugin"},
		{Name: "require-approval", Value: "PROJECT_ADVANCE"}, {Name: "compress", Value: "all"},
	}, allGiven.List())
}

// A setting of another version that is unreadable is dropped, but for the types to approve: without
// them a command would be executed that a person has to approve. One with an unknown name stays in
// the record.
func TestStored_OfLaterVersion(t *testing.T) {
	t.Parallel()
	later := []machine.Setting{
		{Name: "history-per-town", Value: "many"}, {Name: "later", Value: "1"},
		{Name: "require-approval", Value: "MAGIC,PROJECT_ADVANCE"},
		{Name: "apply", Value: "telepathy"}, {Name: "compress", Value: "some"},
	}
	got := ReadRecord(&machine.Record{Settings: later})
	want := Settings{RequireApproval: "MAGIC,PROJECT_ADVANCE"}.WithDefaults(Default())
	require.Equal(t, want, got.Settings)
	require.Len(t, got.Policy().Types, 2)
	require.Contains(t, got.withSettings(allGiven).Entries(), machine.Setting{Name: "later", Value: "1"})
}

// Each setting that is given counts; the others come from the other settings.
func TestSettings_Or(t *testing.T) {
	t.Parallel()
	require.Equal(t, allGiven, allGiven.WithDefaults(Default()))
	require.Equal(t, allGiven, Settings{}.WithDefaults(allGiven))
	require.Equal(t, Default(), Settings{}.WithDefaults(Default()))
}

// Each setting has its least value; a lower one, or no value, is refused by its name. The types to
// approve are stored in one form, however an operator writes them.
func TestSettings_Set(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]map[string]bool{
		HistorySetting:  {"1": true, "0": false, "-1": false, "x": false, "1.5": false},
		BindingSetting:  {"local": true, "plugin": true, "rcon": true, "telepathy": false},
		ApprovalSetting: {"none": true, "PROJECT_ADVANCE": true, "MAGIC": false, "": false},
		CompressSetting: {"events": true, "all": true, "none": false, "": false},
		"later":         {"1": false},
	} {
		for value, want := range values {
			var s Settings
			err := s.Set(name, value)
			require.Equal(t, want, err == nil, "%s %q: %v", name, value, err)
			if want {
				require.Len(t, s.List(), 1, "%s %q", name, value)
				require.Equal(t, name, s.List()[0].Name)
			}
		}
	}
	require.ErrorContains(t, new(Settings).Set("later", "1"), `no setting "later"`)
	require.ErrorContains(t, new(Settings).Set(HistorySetting, "0"),
		`history-per-town must be at least 1, not "0"`)

	checked, err := Settings{RequireApproval: "SALVAGE_PLAN, PROJECT_ADVANCE"}.Normalized()
	require.NoError(t, err)
	require.Equal(t, "PROJECT_ADVANCE,SALVAGE_PLAN", checked.RequireApproval)
	_, err = Settings{RequireApproval: "MAGIC"}.Normalized()
	require.Error(t, err)
	require.NoError(t, Settings{HistoryPerTown: MinHistoryPerTown}.Validate())
	require.ErrorContains(t, Settings{HistoryPerTown: MinHistoryPerTown - 1}.Validate(),
		fmt.Sprintf("history-per-town must be at least %d", MinHistoryPerTown))
}

// A server with its world's settings, or none, serves. One with others is refused, unless the
// operator accepts the messages that they discard.
func TestPlan_Refusal(t *testing.T) {
	t.Parallel()
	differ := allGiven.differences(Default())
	require.Len(t, differ, 4)
	require.Equal(t, Difference{"history-per-town", fmt.Sprint(DefaultHistoryPerTown), "7"},
		differ[0])
	require.Empty(t, allGiven.differences(allGiven))
	require.Empty(t, Settings{}.differences(allGiven))
	require.NoError(t, (&Plan{}).Refusal("w", false))
	for _, discards := range []uint64{0, 3} {
		plan := Plan{Differences: differ, Discards: discards}
		require.NoError(t, plan.Refusal("w", true))
		err := plan.Refusal("w", false)
		require.ErrorContains(t, err, fmt.Sprintf("of the world w: --history-per-town 7, "+
			"and the world has %d; --apply", DefaultHistoryPerTown))
		require.Equal(t, discards > 0, strings.Contains(err.Error(),
			"; --history-per-town would discard messages of WORLD_w_LOG: 3. Omit"))
	}
}
