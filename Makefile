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

# What takes too long for every change: 100,000 mutants of requests and as many of plugins' answers, and a
# million towns. SEED says which mutants; a failure prints it.
SEED ?= 1
nightly:
	go test ./worldengine/server -count=1 -timeout 60m -v -run 'TestMutants$$|TestMutatedPluginAnswers' \
		-mutants=100000 -mutants.seed=$(SEED)
	go test ./cmd/handoffd -count=1 -timeout 60m -v -run TestManyTowns -towns=1000000
	go test ./worldengine/server -count=1 -timeout 10m -v -run 'TestHalfOpen|TestClientsThatLeave' -connections=500

vulncheck:
	.ci/vulncheck

reproducible:
	.ci/reproducible

# The example plugin in a real Minecraft server; needs Node with npm.
minecraft:
	.ci/minecraft
