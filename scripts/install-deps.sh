#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that a task needs and that are missing. scripts/install-deps.sh TASK...
# Tasks: build, test, python, lint, fuzz, aarch64. Needs root or sudo only where a package is missing. SKIP_DEPS=1
# installs nothing: for libraries that were built from source.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages_of() {
  case $1 in
    build) echo g++ cmake ninja-build libcli11-dev libfmt-dev nlohmann-json3-dev libyaml-cpp-dev xz-utils ;;
    test) echo libgtest-dev ;;
    python) echo python3 python3-venv ;;
    lint) echo git python3 python3-venv shellcheck ;;
    fuzz) echo clang libclang-rt-dev ;;
    aarch64) echo g++-aarch64-linux-gnu qemu-user ;;
    *) die "unknown task '$1': allowed are build, test, python, lint, fuzz and aarch64" ;;
  esac
}

[ $# -gt 0 ] || die "no task given: allowed are build, test, python, lint, fuzz and aarch64"
wanted=()
for task in "$@"; do
  list=$(packages_of "$task")
  read -r -a packages <<<"$list"
  wanted+=("${packages[@]}")
done

if [ "${SKIP_DEPS:-0}" = 1 ]; then exit 0; fi
command -v dpkg-query >/dev/null ||
  die "this is not Debian or Ubuntu, so install these packages' equivalents by hand, then set SKIP_DEPS=1: ${wanted[*]}"

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1 || true)
  if [ "$state" != installed ]; then missing+=("$package"); fi
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "these packages are missing and only root or sudo can install them: ${missing[*]}"
  as_root=(sudo)
  # Without a terminal nobody can type a password, so sudo must fail instead of waiting.
  if [ ! -t 0 ]; then as_root+=(-n); fi
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o APT::Color=0 "$@" </dev/null
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { apt install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; }

printf 'installing %s\n' "${missing[*]}"
# Lists may be absent (a bare root) or stale (a package has moved on): fetch them once, then try again.
if ! install; then
  if ! apt update >>"$log" 2>&1 || ! install; then
    cat "$log" >&2
    hint=
    if grep -qs '^ID=ubuntu' /etc/os-release && ! apt-cache show libcli11-dev >/dev/null 2>&1; then
      hint=" (on Ubuntu the component universe must be enabled)"
    fi
    die "apt-get could not install ${missing[*]}$hint"
  fi
fi
