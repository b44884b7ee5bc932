#!/usr/bin/env bash
# Fuzzes the readers of n-gram files with libFuzzer: fuzz.sh [SECONDS per target, 60 by default]
# Needs clang. A file that breaks a reader is left in build/fuzz as crash-*.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/env.sh"

seconds=${1:-60}
compiler=${CXX:-clang++}
command -v "$compiler" >/dev/null || fail "libFuzzer comes with clang, and $compiler is not installed."

setup_environment
export PATH=$venv/bin:$PATH
say "Building the fuzz targets"
cmake -S "$root/csrc" -B "$root/build/fuzz" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDART_BUILD_PYTHON=OFF -DDART_BUILD_FUZZERS=ON \
  -DDART_SANITIZE=address,undefined
cmake --build "$root/build/fuzz"
cd "$root/build/fuzz"
for target in store trie; do
  say "fuzz_$target for $seconds seconds"
  mkdir -p "found/$target"
  "./fuzz_$target" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 \
    "found/$target" "$root/tests/data/fuzz/$target"
done
