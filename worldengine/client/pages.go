package client

import "iter"

// rows goes through the rows of a list, page by page. ask returns the page behind a place, and the
// place behind which the next page begins; the zero place begins and ends the list. It ends behind
// the first error.
func rows[Row any, Place comparable](
	ask func(after Place) (page []Row, next Place, err error),
) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var none Place
		for after, more := none, true; more; more = after != none {
			page, next, err := ask(after)
			if err != nil {
				var zero Row
				yield(zero, err)
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			after = next
		}
	}
}
