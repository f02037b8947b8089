#!/usr/bin/env bash
# build.sh [DIRECTORY] bundles the page into the directory, ../dist of this one where none is named; what is there
# is removed. It needs Node's npm for the three libraries, and Go for esbuild.
set -euo pipefail
out=$(realpath -m "${1:-$(dirname "$0")/../dist}")
cd "$(dirname "$0")"
npm ci --silent --no-audit --no-fund --ignore-scripts
rm -rf "$out"
mkdir "$out"
# One copy of nats-core: that of this page, also for the client. Both go without what the page never uses.
go tool esbuild src/main.jsx --bundle --minify --format=esm --target=es2022 --charset=utf8 --legal-comments=none \
  --jsx=automatic --jsx-import-source=preact --alias:@nats-io/nats-core=./src/natscore.js \
  --alias:@nats-io/nkeys=./src/nonkeys.js --alias:#handoffs=./src/nohandoffs.js \
  --log-level=warning --splitting --entry-names=app --chunk-names='[hash]' --outdir="$out"
go tool esbuild src/style.css --bundle --minify --charset=utf8 --log-level=warning --outfile="$out/app.css"
# The browser asks for what app.js needs while it reads app.js.
needed=$(grep -oE '(from|import)"\./[A-Za-z0-9]+\.js"' "$out/app.js" | grep -oE '[A-Za-z0-9]+\.js' | sort -u |
  sed 's|.*|<link rel="modulepreload" href="&">|')
cp icon.svg "$out/"
awk -v needed="$needed" '{print} /app.css/ {print needed}' index.html > "$out/index.html"
