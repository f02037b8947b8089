// Package worlds holds the example worlds that the demo and the tests start with.
package worlds

import _ "embed"

// Frontier is a world file with three towns. In it town-threatened is at day 15 and has the
// project wall-perimeter, the example of the handoff contract.
//
//go:embed frontier.json
var Frontier []byte
