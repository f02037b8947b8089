package main

import (
	"fmt"
	"slices"
	"strings"
)

// contextLines is how many lines that both texts have stand around a difference.
const contextLines = 3

// unified returns the difference of two texts as diff -u writes it, below the two names. A text
// that does not end with a newline is taken as if it did; equal texts have no difference.
func unified(before, after, nameBefore, nameAfter string) string {
	if before == after {
		return ""
	}
	lines := compareLines(linesOf(before), linesOf(after))
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", nameBefore, nameAfter)
	was, is := 1, 1 // the numbers of the next line in each text
	for i := 0; i < len(lines); {
		next := slices.IndexFunc(lines[i:], diffLine.changed)
		if next < 0 {
			break
		}
		start := max(i, i+next-contextLines)
		was, is = was+start-i, is+start-i // the lines that are passed over are in both
		end := hunkEnd(lines, i+next)
		writeHunk(&b, lines[start:end], &was, &is)
		i = end
	}
	return b.String()
}

// hunkEnd returns the end of the hunk whose first difference is at first.
func hunkEnd(lines []diffLine, first int) int {
	last := first
	for i := first; i < len(lines) && i <= last+2*contextLines; i++ {
		if lines[i].changed() {
			last = i
		}
	}
	return min(len(lines), last+1+contextLines)
}

func writeHunk(b *strings.Builder, lines []diffLine, was, is *int) {
	var old, changed int
	for _, l := range lines {
		if l.sign != '+' {
			old++
		}
		if l.sign != '-' {
			changed++
		}
	}
	fmt.Fprintf(b, "@@ -%s +%s @@\n", hunkRange(*was, old), hunkRange(*is, changed))
	for _, l := range lines {
		fmt.Fprintf(b, "%c%s\n", l.sign, l.text)
	}
	*was, *is = *was+old, *is+changed
}

// hunkRange is a range of lines as diff writes it: an empty one stands behind the line before it.
func hunkRange(first, count int) string {
	if count == 0 {
		first--
	}
	return fmt.Sprintf("%d,%d", first, count)
}

// diffLine is a line of a difference; its sign is ' ', '-' or '+'.
type diffLine struct {
	sign byte
	text string
}

func (l diffLine) changed() bool { return l.sign != ' ' }

func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compareLines returns the lines of both texts, with as many as possible in common.
func compareLines(before, after []string) []diffLine {
	same := 0
	for same < len(before) && same < len(after) && before[same] == after[same] {
		same++
	}
	lines := make([]diffLine, 0, len(before)+len(after))
	for _, text := range before[:same] {
		lines = append(lines, diffLine{' ', text})
	}
	before, after = before[same:], after[same:]
	common := commonLines(before, after)
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		switch {
		case i < len(before) && j < len(after) && before[i] == after[j]:
			lines = append(lines, diffLine{' ', before[i]})
			i, j = i+1, j+1
		case j == len(after) || i < len(before) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, diffLine{'-', before[i]})
			i++
		default:
			lines = append(lines, diffLine{'+', after[j]})
			j++
		}
	}
	return lines
}

// commonLines returns how many lines before[i:] and after[j:] have in common, in their order.
func commonLines(before, after []string) [][]int {
	common := make([][]int, len(before)+1)
	for i := range common {
		common[i] = make([]int, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			if before[i] == after[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}
