package main

import "iter"

// limitFlag bounds a list.
type limitFlag struct {
	Limit uint `help:"How many to show at most; 0 for all." default:"0" placeholder:"N"`
}

// first returns the first n rows of a list; all for 0.
func first[T any](rows iter.Seq2[T, error], n uint) ([]T, error) {
	list := []T{}
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		if list = append(list, row); uint(len(list)) == n {
			break
		}
	}
	return list, nil
}
