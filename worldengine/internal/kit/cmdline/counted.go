package cmdline

import "fmt"

// Counted returns a number with its noun: "1 town", "2 towns".
func Counted[N ~int | ~int64 | ~uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
