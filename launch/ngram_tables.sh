#!/usr/bin/env bash
# The tables about n-grams on the embedded demo: what each source is worth on four kinds of prompts,
# and upstream's score against the fitted one with trees of equal size. Tau does not depend on the
# machine, tokens/s do: run it where nothing else runs.
#
#   bash launch/ngram_tables.sh [RESULTS_FOLDER]     default: assets/results
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/env.sh"

cd "$root"
results=${1:-assets/results}
kinds=(assets/demo/prompts/{heldout,edit,chat,prose}.jsonl)

setup_environment
bench() { "$python" -m dart bench --prompts "${kinds[@]}" --max-new-tokens 128 "$@"; }

bench --decoders baseline,dart:none,dart:static,dart:context,dart:both \
  --warm-up 3 --json "$results/ngram_sources.json"
scores=$(printf ',dart:%s' {static,both}:{upstream,fitted}:{8,16,32,60})
bench --decoders "${scores#,}" --limit 12 --json "$results/ngram_scores.json"
