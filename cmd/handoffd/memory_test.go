package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemory_Sizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]memoryLimit{
		"auto": 0, "off": math.MaxInt64, "128MiB": 128 << 20, "2GiB": 2 << 30,
	} {
		var limit memoryLimit
		require.NoError(t, limit.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, limit, text)
	}
	for _, text := range []string{"", "2", "2GB", "-1GiB", "1MiB", "0GiB", "99999999999GiB", "xMiB"} {
		require.ErrorContains(t, new(memoryLimit).UnmarshalText([]byte(text)), "--memory must be", text)
	}
}

// The least limit counts: of the machine, of the group, or of one above it.
func TestMemory_Usable(t *testing.T) {
	t.Parallel()
	self := fmt.Sprintf("proc/%d/cgroup", os.Getpid())
	const meminfo = "MemTotal:        1024 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		bytes int64
		from  string
	}{
		"nothing is known": {nil, math.MaxInt64, "nothing"},
		"a machine":        {map[string]string{"proc/meminfo": meminfo}, 1 << 20, "the machine"},
		"version 2": {map[string]string{
			"proc/meminfo": meminfo,
			self:           "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "5000\n",
		}, 5000, "its control group"},
		"version 2, above": {map[string]string{
			"proc/meminfo": meminfo, self: "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "7000\n",
		}, 7000, "its control group"},
		"version 2, more than there is": {map[string]string{
			"proc/meminfo": meminfo,
			self:           "0::/\n", "sys/fs/cgroup/memory.max": "9999999999\n",
		}, 1 << 20, "the machine"},
		"version 1": {map[string]string{
			"proc/meminfo": meminfo, self: "3:cpu:/x\n2:memory:/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "6000\n",
		}, 6000, "its control group"},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			file = filepath.Join(root, file)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		}
		bytes, from := usableMemory(root)
		require.Equal(t, c.bytes, bytes, name)
		require.Equal(t, c.from, from, name)
	}
}
