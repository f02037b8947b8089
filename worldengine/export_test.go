package worldengine

// Narrate is narrate for the tests outside the package.
var Narrate = narrate
