#!/usr/bin/env bash
# Makes assets/demo from nothing: corpus, tokenizer, target, DART and EAGLE3 heads, n-gram store,
# model card. Needs no network and no GPU, and takes hours on two cores. Ctrl-C writes a checkpoint,
# the same command goes on from it.
#
#   bash launch/train_demo.sh [RUN_FOLDER] [ASSETS_FOLDER]     default: runs/demo assets/demo
#
#   TARGET_STEPS, HEAD_STEPS     lengths of the training runs of the target and the DART head
#   EAGLE_STEPS                  of the EAGLE3 head; as many as the DART head, for a fair comparison
#   CONTINUATION_TOKENS          tokens that the target writes for its heads to learn from
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/env.sh"

cd "$root"
run=${1:-runs/demo}
assets=${2:-assets/demo}

setup_environment
train() {
  say "dart train $*"
  "$python" -m dart train "$@"
}

[ -f "$run/corpus/sources.json" ] || train corpus --out "$run" --seed 1
[ -f "$run/tokens.json" ] || train tokenizer --out "$run" --seed 1 --vocab-size 4096
[ -d "$run/target" ] || train target --out "$run" --seed 1 --steps "${TARGET_STEPS:-3280}"
[ -f "$run/own.npz" ] ||
  train continuations --out "$run" --seed 1 --tokens "${CONTINUATION_TOKENS:-1500000}"
head_steps=${HEAD_STEPS:-4819}
[ -d "$run/dart" ] || train dart --out "$run" --seed 1 --steps "$head_steps"
[ -d "$run/eagle3" ] || train eagle3 --out "$run" --seed 1 --steps "${EAGLE_STEPS:-$head_steps}"
[ -f "$run/ngram.json" ] || train ngram --out "$run" --order 4
[ -f "$run/calibration.npz" ] || train texts --out "$run" --seed 1
[ -f "$run/calibration.json" ] || train calibrate --out "$run" --seed 1
[ -f "$run/rates.json" ] || train evaluate --out "$run" --seed 1
train assets --out "$run" --seed 1 --assets "$assets"
