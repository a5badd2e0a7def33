#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/jobs/retro_page.sh BUILD: runs the commands of the example in src/retro/README.md as they are written there, in a copy of
# the pages, and looks for the page that the last one writes.
set -euo pipefail
build=$(cd "${1:?usage: regression/jobs/retro_page.sh BUILD}" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$build/bin:$PATH
cd "$source"
find README.md src -name '*.md' -print0 | xargs -0 cp --parents -t "$work"
cd "$work"
# An indented line without `$` after a command is its output.
sed -n '/^## An example$/,/^## Commands$/s/^    \$ //p' src/retro/README.md > commands
while IFS= read -r command; do
  bash -c "$command" > output 2>&1 < /dev/null || { echo "FAILED: $command"; cat output; exit 1; }
done < commands
grep -q '^gyrfalcon retro page' commands
grep -q '<section id="c0">.*Chunk 0' out/pages/neighbours.html
echo "$(wc -l < commands) commands of the example succeed"
