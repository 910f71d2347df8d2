#!/usr/bin/env bash
# Builds a preset and runs its tests. scripts/test.sh PRESET [--only TEST]... [CTEST OPTION...]
# With --only, those test programs alone are built and run.
# A test's output is shown when it fails; ctest's closing line comes last, and stays in build-PRESET/test.log.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -gt 0 ] || die "no preset given: allowed are those that ctest --list-presets prints"
preset=$1
shift
only=()
while [ "${1:-}" = --only ]; do
  only+=("$2")
  shift 2
done

# The Python tests run in an environment of their own, so that what the machine has installed does not decide which run.
venv=$root/.venv
if ! cmp -s scripts/test-requirements.txt "$venv/installed.txt"; then
  make_venv() {
    python3 -m venv --clear "$venv" && "$venv/bin/pip" install --disable-pip-version-check -r scripts/test-requirements.txt
  }
  quietly 'Python environment' "build-$preset/venv.log" make_venv ||
    die "numpy could not be installed into .venv (needs python3-venv and a package index for pip)"
  cp scripts/test-requirements.txt "$venv/installed.txt"
fi
quietly "configure $preset" "build-$preset/configure.log" cmake --preset "$preset" -DPython3_EXECUTABLE="$venv/bin/python"

scripts/build.sh "$preset" "${only[@]}"
if [ ${#only[@]} -gt 0 ]; then
  set -- --tests-regex "^($(IFS='|' && echo "${only[*]}"))\$" "$@"
fi
ctest --preset "$preset" --parallel "$(nproc)" --output-log "build-$preset/test.log" "$@" </dev/null
