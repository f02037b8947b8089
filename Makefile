# The commands of everyday work. `make verify` is what continuous integration runs.
.PHONY: build test verify demo bench browser minecraft overload nightly vulncheck reproducible release

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

# More about one town than this machine can do, for a minute.
overload:
	go test ./worldengine/handoffd -count=1 -run 'TestOverload$$' -v -timeout 10m -overload.for=1m

# What takes too long for every change, some hours: see docs/reliability.md. SEED=20261121 draws again what
# was drawn that day.
nightly:
	.ci/nightly

vulncheck:
	.ci/vulncheck

reproducible:
	.ci/reproducible

# The archives of a release in dist/, their checksums and SBOMs; the same commit makes the same bytes.
release:
	.ci/release

# The console in a real browser; needs Node with npm, and Debian's chromium.
browser:
	.ci/browser

# The example plugin in a real Minecraft server; needs Node with npm.
minecraft:
	.ci/minecraft
