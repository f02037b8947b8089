// Package counted writes numbers of things.
package counted

import "fmt"

// Of returns a number with its noun: "1 town", "2 towns".
func Of[N ~int | ~int64 | ~uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
