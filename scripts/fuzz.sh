#!/usr/bin/env bash
# Fuzzes every parser. scripts/fuzz.sh SECONDS [TARGET...]
# Runs each target (all, or those named) for SECONDS on the committed corpus, with address and undefined-behaviour sanitizers.
# New inputs stay in build-fuzz/; an input that fails is kept there too, is named, and makes the exit status 1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || die "SECONDS is '${1:-}'; give the whole seconds to run each target, as in: scripts/fuzz.sh 10"
seconds=$1
shift
all=(safetensors trtllm_yaml checkpoint_json longhaul_yaml formula)
targets=("$@")
[ $# -gt 0 ] || targets=("${all[@]}")
for target in "${targets[@]}"; do
  [ -f "fuzz/$target.cc" ] || die "there is no fuzz target '$target'; targets are ${all[*]}"
done
compiler=${CXX_FUZZ:-clang++}
command -v "$compiler" >/dev/null || die "$compiler is not installed; fuzzing needs clang (set CXX_FUZZ to name another)"

build="build-fuzz"
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DLONGHAUL_BUILD_FUZZERS=ON -DLONGHAUL_BUILD_TESTS=OFF \
  -DLONGHAUL_BUILD_CLI=OFF >/dev/null
ninja -C "$build" fuzzers >/dev/null || ninja -C "$build" fuzzers

failed=0
for target in "${targets[@]}"; do
  mkdir -p "$build/found/$target" "$build/failures"
  case $target in
    *_yaml) dictionary=(-dict=fuzz/yaml.dict) ;;
    formula) dictionary=() ;;
    *) dictionary=(-dict=fuzz/json.dict) ;;
  esac
  log="$build/fuzz-$target.log"
  # -timeout: an input that takes longer than 10 s is a failure too. libFuzzer writes new inputs to the first folder only.
  if "$build/fuzz/fuzz_$target" "$build/found/$target" "fuzz/corpus/$target" "${dictionary[@]}" -max_total_time="$seconds" \
    -timeout=10 -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="$build/failures/$target-" >"$log" 2>&1; then
    echo "fuzz $target: $(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "$log" | tail -1)s, nothing found"
  else
    failed=1
    echo "fuzz $target: FAILED"
    tail -n 40 "$log"
  fi
done
exit $failed
