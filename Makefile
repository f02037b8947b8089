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
	go test ./cmd/handoffd -count=1 -run 'TestOverload$$' -v -timeout 10m -overload.for=1m -overload.hot=0.97

# What takes too long for every change, some hours: see docs/reliability.md. SEED=20261121 draws again what
# was drawn that day.
nightly:
	.ci/nightly

vulncheck:
	.ci/vulncheck

reproducible:
	.ci/reproducible

# The example plugin in a real Minecraft server; needs Node with npm.
minecraft:
	.ci/minecraft
