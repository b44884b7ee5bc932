#!/usr/bin/env bash
# Fuzzes the readers of n-gram files with libFuzzer: fuzz.sh [SECONDS per target, 60 by default]
# Needs clang. A file that breaks a reader is left in build/fuzz as crash-*.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/env.sh"

seconds=${1:-60}
# Debian names the compiler with its version.
for compiler in "${CXX:-clang++}" clang++-{22..14}; do
  command -v "$compiler" >/dev/null && break
done
command -v "$compiler" >/dev/null || fail "libFuzzer comes with clang, which is not installed."

setup_environment
export PATH=$venv/bin:$PATH
say "Building the fuzz targets"
cmake -S "$root/csrc" -B "$root/build/fuzz" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDART_BUILD_PYTHON=OFF -DDART_BUILD_FUZZERS=ON \
  -DDART_SANITIZE=address,undefined
cmake --build "$root/build/fuzz"
cd "$root/build/fuzz"
for target in fuzz_*; do
  [ -f "$target" ] && [ -x "$target" ] || continue
  say "$target for $seconds seconds"
  mkdir -p "corpus/$target"
  "./$target" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 -print_final_stats=1 \
    "corpus/$target" "$root/tests/data/fuzz/${target#fuzz_}"
done
