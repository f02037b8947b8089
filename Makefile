# The commands of everyday work. `make verify` is what continuous integration runs.
.PHONY: build test verify demo bench minecraft

build:
	go build -o bin/ ./cmd/...

test:
	go test ./...

verify:
	.ci/run

demo:
	go run ./cmd/handoffd demo

bench:
	go run ./cmd/handoffctl bench

# The example plugin in a real Minecraft server; needs Node with npm.
minecraft:
	.ci/minecraft
