#!/usr/bin/env bash
# Compiles and runs the README's C++ and C examples against a build. run_examples.sh README BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
readme=$1 build=$2 source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# extract LANGUAGE: the fenced block of that language.
extract() { awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } $0 == "```" { inside = 0 } inside' "$readme"; }

flags=(-Wall -Wextra -Werror -I "$source/include" -I "$build/include")
libraries=(-L "$build" -llonghaul "-Wl,-rpath,$build")
for language in cpp c; do
  extract $language >"$work/example.$language"
  [ -s "$work/example.$language" ] || { echo "the README has no $language example"; exit 1; }
done
c++ -std=c++20 "${flags[@]}" "$work/example.cpp" -o "$work/cpp" "${libraries[@]}"
cc -std=c11 "${flags[@]}" -x c "$work/example.c" -x none -o "$work/c" "${libraries[@]}"

sparsity=$("$work/cpp")
echo "$sparsity"
[[ $sparsity =~ ^sparsity\ 0\.[0-9]*[1-9] ]] || { echo "the C++ example skipped nothing"; exit 1; }
message=$("$work/c")
echo "$message"
[[ $message == *query* ]] || { echo "the C example did not print the sentence about its missing query"; exit 1; }
