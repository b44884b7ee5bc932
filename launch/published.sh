#!/usr/bin/env bash
# Starts the app on the published checkpoints of one size of Qwen3: published.sh SIZE [flags of the app]
#
# Flags given here come last and win. The EAGLE3 head is loaded with --compare-eagle3 only; a share
# link is published with --share only.
set -euo pipefail

size=$1
shift
head=fvliang/qwen${size,,}-dart
eagle3=()
previous=
for flag in "$@"; do
  # ModelScope has the heads under the target's full name.
  case $previous$flag in
    --hubmodelscope | --hub=modelscope) head=fvliang/Qwen3-$size-dart ;;
    *--compare-eagle3) eagle3=(--eagle3-model-name-or-path "AngelSlim/Qwen3-${size}_eagle3") ;;
  esac
  previous=$flag
done

exec bash "$(dirname -- "${BASH_SOURCE[0]}")/demo.sh" \
  --base-model-name-or-path "Qwen/Qwen3-$size" \
  --dart-model-name-or-path "$head" \
  --ngram-model-name-or-path fvliang/dart-qwen3-ngram \
  --use-small-ngram \
  ${eagle3[@]+"${eagle3[@]}"} \
  "$@"
