# The commands of everyday work. `make verify` is what continuous integration runs.
.PHONY: build test verify demo bench minecraft overload nightly vulncheck reproducible

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

# Ten times what this machine can do, for a minute.
overload:
	go run ./cmd/handoffctl bench --overload 10 --duration 60s

# What takes too long for every change: 100,000 mutated handoffs, 10,000 of each other request, and a
# million unknown towns. SEED says which mutations; a failure prints it.
SEED ?= 1
nightly:
	go test ./worldengine/server -count=1 -timeout 60m -v -run TestMutated -mutations 100000 -seed $(SEED)
	go test ./worldengine/server -count=1 -timeout 60m -v -run TestManyTowns -towns 1000000
	go test ./worldengine/server -count=1 -timeout 10m -v -run TestHalfOpen -connections 2000

vulncheck:
	.ci/vulncheck

reproducible:
	.ci/reproducible

# The example plugin in a real Minecraft server; needs Node with npm.
minecraft:
	.ci/minecraft
