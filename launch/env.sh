# Sourced by the other scripts: gives them an environment of this repository's own, in .venv.
#
#   setup_environment [dev]    makes it or brings it up to date; `dev` adds what checks and tests need
#   $root, $python             the repository and the environment's interpreter
#
#   DART_PYTHON=python3.12     the interpreter to make the environment from
#   DART_VENV=FOLDER           another place than .venv
#   DART_NO_UV=1               venv and pip even where uv is installed
#
# A stamp in the environment remembers what it was made from, so a second start takes seconds.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=${DART_VENV:-$root/.venv}
python=$venv/bin/python

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
if [ ! -t 2 ]; then say() { printf '==> %s\n' "$*" >&2; }; fi

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

has_uv() { [ -z "${DART_NO_UV:-}" ] && command -v uv >/dev/null; }

# An interpreter of 3.10 or newer that starts: names on PATH may be shims of versions not there.
find_python() {
  local candidate
  if [ -n "${DART_PYTHON:-}" ]; then
    "$DART_PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
      fail "DART_PYTHON=$DART_PYTHON is no Python 3.10 or newer."
    echo "$DART_PYTHON"
    return
  fi
  for candidate in python3 python3.12 python3.13 python3.11 python3.10 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python 3.10 or newer was found. Install one, or name it: DART_PYTHON=/path/to/python."
}

make_environment() {
  local from
  from=$(find_python) || exit 1
  say "Making an environment in ${venv#"$root"/} from $("$from" --version)"
  if has_uv; then
    uv venv --quiet --clear --python "$from" "$venv" || fail "uv could not make $venv."
  else
    "$from" -m venv --clear "$venv" ||
      fail "$from could not make $venv. On Debian and Ubuntu: apt install python3-venv."
  fi
}

install() {
  # Not quiet: some of these are large, and a progress bar is better than silence.
  if has_uv; then
    uv pip install --python "$python" "$@" </dev/null
  else
    "$python" -m pip install --disable-pip-version-check --no-input "$@" </dev/null
  fi
}

# What a stage depends on, as one line: its files' checksums, the interpreter, the place.
fingerprint() {
  { "$python" --version; echo "$venv $root"; cat "$@"; } 2>/dev/null | cksum
}

# stage NAME FINGERPRINT WHAT COMMAND...: runs the command unless it ran for this fingerprint before.
stage() {
  local stamp=$venv/.dart-$1 wanted=$2 what=$3
  shift 3
  [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
  say "$what"
  rm -f "$stamp"
  "$@" || fail "$what: failed, see above."
  echo "$wanted" >"$stamp"
}

build_extension() {
  # The build tools of the environment, not of the machine: cmake and ninja are among them.
  PATH=$venv/bin:$PATH install --no-deps --no-build-isolation -e "$root"
}

setup_environment() {
  local sources
  "$python" -c '' 2>/dev/null || make_environment
  stage packages "$(fingerprint "$root/requirements.txt")" \
    "Installing packages (torch is large; minutes the first time)" \
    install -r "$root/requirements.txt"
  if [ "${1:-}" = dev ]; then
    stage dev "$(fingerprint "$root"/requirements*.txt)" "Installing the tools of checks and tests" \
      install -r "$root/requirements.txt" -r "$root/requirements-dev.txt"
  fi
  sources=$(find "$root/csrc" -type f | LC_ALL=C sort)
  # shellcheck disable=SC2086 - one word a file: the repository has no names with spaces
  (cd "$root" && stage extension "$(fingerprint pyproject.toml $sources)" \
    "Building the C++ extension" build_extension) || exit 1
}
