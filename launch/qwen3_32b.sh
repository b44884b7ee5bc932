#!/usr/bin/env bash
# The app on Qwen3-32B with its published DART head; all flags of the app can follow.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/published.sh" 32B "$@"
