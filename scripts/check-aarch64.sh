#!/usr/bin/env bash
# Cross-compiles the library and the tests of the core, the C interface and attention for 64-bit Arm and runs them under
# qemu-user. scripts/check-aarch64.sh [CTEST OPTION...]
# Installs Debian's cross compiler and emulator where they are missing; the arm64 libraries are unpacked into
# build-aarch64/root, so the system's packages stay as they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=$PWD/build-aarch64
parts=(src/core src/capi src/attention)
libraries=$folder/root

# apt with lists of its own that hold arm64 packages.
apt_arm64() {
  local command=$1
  shift
  "$command" -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$folder/apt/lists" \
    -o Dir::State::status=/dev/null -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User=root "$@"
}

unpack_libraries() {
  local wanted archive
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/apt/packages"
  apt_arm64 apt-get update
  # CMake's package files name the shared libraries too, which are packages of their own.
  wanted=(libyaml-cpp-dev libfmt-dev nlohmann-json3-dev libgtest-dev libgmock-dev)
  mapfile -t -O ${#wanted[@]} wanted < <(
    apt_arm64 apt-cache depends --no-recommends --no-suggests libyaml-cpp-dev libfmt-dev |
      awk '/Depends:/ && $2 ~ /^lib(yaml-cpp|fmt)[0-9]/ { print $2 }' | sort -u
  )
  (cd "$folder/apt/packages" && apt_arm64 apt-get download "${wanted[@]}")
  for archive in "$folder"/apt/packages/*.deb; do dpkg -x "$archive" "$libraries.new"; done
  mv "$libraries.new" "$libraries"
}

configure() {
  cmake -S . -B "$folder" -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/toolchains/aarch64.cmake -DCMAKE_BUILD_TYPE=Release \
    -DLONGHAUL_AARCH64_ROOT="$libraries" -DLONGHAUL_BUILD_CLI=OFF
}

# The emulator is slow, so the tests run at their short level.
run_tests() {
  local part
  for part in "${parts[@]}"; do
    LONGHAUL_TEST_EMULATED=1 LONGHAUL_TEST_LEVEL=${LONGHAUL_TEST_LEVEL:-short} \
      ctest --test-dir "$folder/$part" --output-on-failure \
      --no-tests=error --parallel "$(nproc)" "$@" </dev/null
  done
}

scripts/install-deps.sh build aarch64
[ -d "$libraries" ] || quietly 'unpack arm64 libraries' "$folder/unpack.log" unpack_libraries
quietly 'configure aarch64' "$folder/configure.log" configure
quietly 'build aarch64' "$folder/build.log" ninja -C "$folder" -j "$(jobs)" "${parts[@]/%//all}"
run_tests "$@"
