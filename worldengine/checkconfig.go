package worldengine

// CheckConfig says how many towns a world file has, and what would keep an engine from starting with a
// configuration and that file, which may be nil. It starts nothing.
func CheckConfig(config Config, file []byte) (towns int, err error) {
	if config, err = config.withDefaults(); err != nil || file == nil {
		return 0, err
	}
	list, err := parseWorld(file, (&Engine{config: config}).mayBind)
	return len(list), err
}
