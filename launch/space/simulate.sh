#!/usr/bin/env bash
# Plays a Gradio Space on this machine: simulate.sh [--no-compiler]
#
# As Spaces do: an environment with requirements.txt and nothing else, made before the repository is
# there; then the last commit, a user without rights (started as root; else whoever starts it), and
# the variables of a Space. Prints as JSON what a visitor gets; fails where the page, an answer or a
# race does not come, where texts differ, or where the core is not the expected one.
#
#   --no-compiler         no compiler on PATH: the search in Python must do
#   DART_PYTHON=python3   the interpreter to make the environment from
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
say() { printf '==> %s\n' "$*" >&2; }

path=$PATH wanted=compiled
case ${1:-} in
  --no-compiler) wanted=python ;;
  '') ;;
  *) echo "usage: simulate.sh [--no-compiler]" >&2; exit 2 ;;
esac

work=$(mktemp -d)
server=
clean_up() {
  # The shell's child is the server itself: setpriv and env replace themselves.
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf -- "$work"
}
trap clean_up EXIT
chmod 755 "$work"  # for the user without rights

as_user=()
if [ "$(id -u)" = 0 ]; then
  as_user=("$(command -v setpriv)" --reuid=1000 --regid=1000 --clear-groups)
fi
# An interpreter in root's home is not for others.
python=
for candidate in ${DART_PYTHON:-python3 /usr/bin/python3}; do
  # As a path: the same name may be another interpreter for another user.
  candidate=$(command -v -- "$candidate") || continue
  # Through env, as the app is started: setpriv itself may still have the right to run it.
  if "${as_user[@]}" env "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "error: no Python that user 1000 can run; name one: DART_PYTHON" >&2; exit 1; }

say "Installing requirements.txt alone for $("$python" --version)"
"$python" -m venv "$work/venv"
mkdir "$work/build"
cp -- "$root/requirements.txt" "$work/build/"
(cd "$work/build" && "$work/venv/bin/python" -m pip install -qq --disable-pip-version-check \
  --no-input -r requirements.txt)
if [ "$wanted" = python ]; then path=$work/venv/bin; else path=$work/venv/bin:$path; fi

say "Copying the last commit in"
mkdir -p "$work/home/app"
git -C "$root" archive HEAD | tar -x -C "$work/home/app"

if [ "$(id -u)" = 0 ]; then chown -R 1000:1000 "$work/home"; fi
port=$("$work/venv/bin/python" -c \
  'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
space=(env -i PATH="$path" HOME="$work/home" LANG=C.UTF-8 SYSTEM=spaces SPACE_ID=someone/dart
  GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT="$port" GRADIO_NUM_PORTS=1 HF_HUB_OFFLINE=1
  PYTHONUNBUFFERED=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}" "$work/venv/bin/python")

say "Starting the app"
cd "$work/home/app"
"${as_user[@]}" "${space[@]}" app/app.py >"$work/log" 2>&1 &
server=$!
status=0
"${as_user[@]}" "${space[@]}" launch/space/visit.py "http://127.0.0.1:$port/" 900 || status=$?

# The same question in the same place gets the core that the app has.
core=$("${as_user[@]}" "${space[@]}" -c \
  'from dart import native; print("compiled" if native.fallback_reason() is None else "python")')
say "The app's log"
cat "$work/log" >&2
if [ "$core" != "$wanted" ]; then
  say "The core is $core; expected $wanted."
  status=1
fi
say "Done: core $core, exit code $status"
exit "$status"
