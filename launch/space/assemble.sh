#!/usr/bin/env bash
# Puts together what a Space needs, and nothing else: assemble.sh gradio|docker FOLDER
#
# From the last commit into an empty or new folder: app, engine, C++ sources, embedded demo, and a
# README.md that begins with the Space's settings. Upload it with:
#   hf upload OWNER/NAME FOLDER . --repo-type space
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)

kind=${1:-} folder=${2:-}
if [ $# -ne 2 ] || [ ! -f "$here/$kind.yml" ]; then
  echo "usage: assemble.sh gradio|docker FOLDER" >&2
  exit 2
fi
if [ -n "$(ls -A -- "$folder" 2>/dev/null)" ]; then
  echo "error: $folder is not empty; give an empty or a new folder." >&2
  exit 1
fi
mkdir -p -- "$folder"
git -C "$root" archive HEAD -- \
  app dart csrc/bindings.cpp csrc/include csrc/src assets/demo requirements.txt LICENSE README.md |
  tar -x -C "$folder"

{
  printf -- '---\n%s\n---\n\n' "$(cat "$here/$kind.yml")"
  # The README without settings of its own.
  awk 'NR == 1 && $0 == "---" { skip = 1; next } skip && $0 == "---" { skip = 0; next } !skip' \
    "$folder/README.md"
} >"$folder/README.new"
mv -- "$folder/README.new" "$folder/README.md"
if [ "$kind" = docker ]; then cp -- "$here/Dockerfile" "$folder/Dockerfile"; fi
