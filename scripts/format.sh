#!/usr/bin/env bash
# Formats the C++ and Python sources. scripts/format.sh [--check] [FILE...]
# --check changes nothing, names each file that is not formatted, and then exits 1. Without files: all of them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check=0
if [ "${1:-}" = --check ]; then
  check=1
  shift
fi
if [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(source_files h cc cu cuh py)
fi
cpp=() python=()
for file in "${files[@]}"; do
  case $file in
    *.h | *.cc | *.cu | *.cuh) cpp+=("$file") ;;
    *.py) python+=("$file") ;;
    *) die "cannot format $file: allowed are .h, .cc, .cu, .cuh and .py" ;;
  esac
done

clang_format=$(lint_tool clang-format)
ruff=$(lint_tool ruff)
failed=0
if [ ${#cpp[@]} -gt 0 ]; then
  if [ $check = 1 ]; then
    "$clang_format" --dry-run -Werror --ferror-limit=1 "${cpp[@]}" || failed=1
  else
    "$clang_format" -i "${cpp[@]}"
  fi
fi
if [ ${#python[@]} -gt 0 ]; then
  if [ $check = 1 ]; then
    "$ruff" format --quiet --diff "${python[@]}" || failed=1
  else
    "$ruff" format --quiet "${python[@]}"
  fi
fi
if [ $failed = 1 ]; then die "some files are not formatted: run make format"; fi
