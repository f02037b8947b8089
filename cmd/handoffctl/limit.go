package main

import "iter"

// limitFlag bounds a list.
type limitFlag struct {
	Limit uint `help:"How many to show at most; 0 for all." default:"0" placeholder:"N"`
}

// firstOf returns the first n rows of a list; all for 0.
func firstOf[T any](rows iter.Seq2[T, error], n uint) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		shown := uint(0)
		for row, err := range rows {
			if shown++; !yield(row, err) || shown == n {
				return
			}
		}
	}
}
