#!/usr/bin/env bash
# Builds a preset and runs its tests. scripts/test.sh PRESET [CTEST OPTION...]
# A test's output is shown when it fails; ctest's closing line comes last.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -gt 0 ] || die "no preset given: allowed are those that ctest --list-presets prints"
preset=$1
shift
scripts/build.sh "$preset"
ctest --preset "$preset" --parallel "$(nproc)" --output-log "build-$preset/test.log" "$@" </dev/null
