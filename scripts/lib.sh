# shellcheck shell=bash
# Shared by the scripts here: source it, after `set -euo pipefail`.
# A caller's umask must not make built files unreadable for others, or installed ones.
umask 022
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

# die MESSAGE: one sentence on standard error, exit status 1.
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# quietly TITLE LOG COMMAND...: one line with the seconds it took; the log only if the command fails.
quietly() {
  local title=$1 log=$2 begin=$SECONDS status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  "$@" </dev/null >"$log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    printf '%s: failed with status %d after %d s; its output:\n' "$title" $status $((SECONDS - begin)) >&2
    cat "$log" >&2
    return $status
  fi
  printf '%s: %d s\n' "$title" $((SECONDS - begin))
}

# Compilers running at once: one a core, but 0.75 GiB of free memory for each; the largest source takes 0.43 GiB.
jobs() {
  local cores available
  cores=$(nproc)
  available=$(awk '/^MemAvailable:/ { print int($2 / 786432) }' /proc/meminfo)
  if [ "${available:-1}" -lt "$cores" ]; then cores=$available; fi
  if [ "$cores" -lt 1 ]; then cores=1; fi
  echo "$cores"
}

# lint_tool NAME: path of a pinned tool, installed on first use into .venv-lint.
lint_tool() {
  local venv=$root/.venv-lint wanted=$root/scripts/lint-requirements.txt
  if ! cmp -s "$wanted" "$venv/installed.txt"; then
    rm -rf "$venv"
    { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"; } >&2 ||
      die "the pinned format and lint tools could not be installed into .venv-lint (needs python3-venv and a package index for pip)"
    cp "$wanted" "$venv/installed.txt"
  fi
  echo "$venv/bin/$1"
}

# source_files EXTENSION...: tracked and new files, one a line, that git does not ignore; deleted ones left out.
source_files() {
  local patterns=() extension
  for extension in "$@"; do patterns+=("*.$extension"); done
  git ls-files --cached --others --exclude-standard -- "${patterns[@]}" | sort -u | while IFS= read -r file; do
    if [ -e "$file" ]; then printf '%s\n' "$file"; fi
  done
}
