#!/usr/bin/env bash
# Every check and every test. Flags go to pytest: bash launch/test.sh -k bench
# All stages run even where one fails; the exit code is 0 only if none did.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/env.sh"

setup_environment dev
cd "$root"
export PATH=$venv/bin:$PATH
sanitized=build/sanitized
failed=()

check() {
  local what=$1
  shift
  say "$what"
  "$@" </dev/null || failed+=("$what")
}

check_cpp_format() {
  find csrc \( -name '*.cpp' -o -name '*.h' \) -exec clang-format --dry-run -Werror {} +
}

test_cpp() {
  cmake -S csrc -B "$sanitized" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDART_BUILD_PYTHON=OFF \
    -DDART_BUILD_TESTS=ON -DDART_WERROR=ON -DDART_SANITIZE=address,undefined &&
    cmake --build "$sanitized" &&
    ctest --test-dir "$sanitized" --output-on-failure
}

check "ruff: lint" ruff check .
check "ruff: format" ruff format --check .
check "pyright: types" pyright --pythonpath "$python"
check "clang-format" check_cpp_format
check "C++ tests under AddressSanitizer and UBSan" test_cpp
check "pytest" "$python" -m pytest "$@"

if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
say "Everything passed"
