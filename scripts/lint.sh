#!/usr/bin/env bash
# All static checks: format, rules for text, shellcheck, ruff, clang-tidy. scripts/lint.sh [--changed [BASE]]
# --changed gives clang-tidy only the sources that differ from BASE (default HEAD), or that include a header which does.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

base=
case ${1:-} in
  '') ;;
  --changed) base=${2:-HEAD} ;;
  *) die "unknown option '$1': allowed is --changed [BASE]" ;;
esac

failed=()
step() {
  local title=$1 begin=$SECONDS
  shift
  if "$@"; then
    printf 'lint: %s: %d s\n' "$title" $((SECONDS - begin))
  else
    failed+=("$title")
  fi
}

shell_scripts() {
  local files
  mapfile -t files < <(source_files sh; echo .ci/run)
  shellcheck --severity=warning --exclude=SC1091,SC2154 "${files[@]}"
}

python_sources() {
  local files
  mapfile -t files < <(source_files py)
  if [ ${#files[@]} -gt 0 ]; then "$(lint_tool ruff)" check --quiet "${files[@]}"; fi
}

# Sources that clang-tidy sees: those of compile_commands.json below this folder, or of them the changed ones.
tidy_sources() {
  python3 - "$1" "$base" <<'PYTHON'
import json, pathlib, subprocess, sys

root = pathlib.Path.cwd()
commands = json.loads(pathlib.Path(sys.argv[1], "compile_commands.json").read_text())
# Not nvcc's: clang-tidy knows neither its options nor the language without a toolkit of its own.
ours = {c["file"] for c in commands if c["file"].endswith(".cc") and root in pathlib.Path(c["file"]).parents}
sources = sorted(file for file in ours if "/build-" not in file)
if sys.argv[2]:
    diff = subprocess.run(["git", "diff", "--name-only", sys.argv[2]], check=True, capture_output=True, text=True)
    new = subprocess.run(["git", "ls-files", "-o", "--exclude-standard"], check=True, capture_output=True, text=True)
    changed = set((diff.stdout + new.stdout).split())
    headers = [pathlib.Path(name).name for name in changed if name.endswith(".h")]

    def concerned(source):
        text = pathlib.Path(source).read_text()
        return str(pathlib.Path(source).relative_to(root)) in changed or any(f'/{h}"' in text for h in headers)

    sources = [source for source in sources if concerned(source)]
# The largest first, so that no core idles at the end.
sources.sort(key=lambda source: -pathlib.Path(source).stat().st_size)
print("\n".join(sources))
PYTHON
}

clang_tidy() {
  local tool
  tool=$(lint_tool clang-tidy)
  tidy_sources build-release | xargs -r -d '\n' -n 1 -P "$(jobs)" \
    "$tool" -p build-release --quiet --extra-arg=-Wno-unknown-warning-option 2> >(grep -v ' warnings\? generated' >&2)
}

scripts/build.sh release longhaul_build_info  # configures, and makes the one generated header that sources include
step format scripts/format.sh --check
step 'rules for text' scripts/check-text.sh
step shellcheck shell_scripts
step ruff python_sources
step clang-tidy clang_tidy
if [ ${#failed[@]} -gt 0 ]; then
  die "lint failed: $(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
fi
