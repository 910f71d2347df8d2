#!/usr/bin/env bash
# Configures a preset of CMakePresets.json where that is new, and builds it. scripts/build.sh PRESET [TARGET...]
# On a terminal ninja shows its one line of progress; elsewhere one line at the end, and the log only on failure.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -gt 0 ] || die "no preset given: allowed are those that cmake --list-presets prints"
preset=$1
shift
folder=build-$preset

configure() { cmake --preset "$preset"; }
# CMake itself notices later changes of its files; a preset's changed values need a new configure.
if [ ! -e "$folder/build.ninja" ] || [ CMakePresets.json -nt "$folder/build.ninja" ]; then
  quietly "configure $preset" "$folder/configure.log" configure
fi
if [ -t 1 ]; then
  ninja -C "$folder" -j "$(jobs)" --quiet "$@" || die "the build of preset $preset failed"
else
  quietly "build $preset" "$folder/build.log" ninja -C "$folder" -j "$(jobs)" "$@"
fi
