#!/usr/bin/env bash
# Starts the app: the embedded demo model, or what the flags say (python app/app.py --help).
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/env.sh"

setup_environment
say "Starting the app"
exec "$python" "$root/app/app.py" "$@"
