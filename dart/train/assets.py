"""Writes assets/demo: the target, its heads, its n-gram store, prompts, and a model card."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dart.train.dataset import read_documents
from dart.train.pairs import Document
from dart.train.synthetic import PACKAGE

EXAMPLES = Path(__file__).with_name("examples.txt")
COMMAND = "bash launch/train_demo.sh"


def read_examples() -> list[str]:
    """Return the prompts that the app offers."""
    return EXAMPLES.read_text(encoding="utf-8").splitlines()


def held_out_prompts(
    documents: Sequence[Document], *, count: int, seed: int, longest: int = 900
) -> list[Document]:
    """Return `count` held-out chat pairs with distinct prompts, half of them synthetic.

    longest     characters of a prompt
    """
    groups: list[list[Document]] = [[], []]
    seen: set[str] = set()
    order = list(documents)
    random.Random(seed).shuffle(order)
    for document in order:
        if document.prompt and document.prompt not in seen and len(document.prompt) <= longest:
            seen.add(document.prompt)
            groups[document.package == PACKAGE].append(document)
    half = count // 2
    return groups[1][:half] + groups[0][: count - half]


def write_assets(run: Path, folder: Path, *, seed: int) -> None:
    """Copy what the run made into `folder` and describe it there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("target", "dart", "eagle3", "ngram"):
        shutil.rmtree(folder / name, ignore_errors=True)
        if name != "eagle3" or (run / name).exists():
            shutil.copytree(run / name, folder / name, copy_function=shutil.copyfile)
    prompts = folder / "prompts"
    prompts.mkdir(parents=True, exist_ok=True)
    documents = read_documents(run / "corpus" / "heldout.jsonl")
    held_out = held_out_prompts(documents, count=240, seed=seed)
    _write_lines(
        prompts / "heldout.jsonl",
        [{"prompt": d.prompt, "kind": d.kind, "source": d.package} for d in held_out],
    )
    _write_lines(prompts / "examples.jsonl", [{"prompt": prompt} for prompt in read_examples()])
    (folder / "README.md").write_text(model_card(run, folder), encoding="utf-8")


def _write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def model_card(run: Path, folder: Path) -> str:
    """Return the model card, from what the run recorded."""
    sources = _read(run / "corpus" / "sources.json")
    tokens = _read(run / "tokens.json")
    rates = _read(run / "rates.json")
    ngram = _read(run / "ngram.json")
    config = _read(folder / "target" / "config.json")
    target_settings, target_lines = _settings_and_metrics(run / "target-run")
    head_settings, head_lines = _settings_and_metrics(run / "dart-run")
    target_end, head_end = target_lines[-1], head_lines[-1]
    packages = {p["name"]: p for p in sources["packages"]}
    shares = {name: n for name, n in sources["documented_functions"].items() if n}
    licences = "\n".join(
        f"| {name} {packages[name]['version']} | {packages[name]['licence']} | {count} |"
        for name, count in shares.items()
    )
    files = "\n".join(
        f"| `{path.relative_to(folder)}` | {path.stat().st_size:,} |"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "README.md"
    )
    pools = "\n".join(
        f"| {pool} | {row['documents']:,} | {row['tokens']:,} | "
        f"{target_end['epochs'].get(pool, 0):.2f} |"
        for pool, row in tokens["train"].items()
    )
    return f"""# The demo model

A target model of {_millions(target_settings["parameters"])} parameters, its draft heads and its
n-gram store, all trained by this repository on two CPU cores. They exist so that speculative
decoding can be watched on a machine without a GPU and without a model hub. The target writes
small Python functions; it knows nothing else, and what it writes is often wrong.

Made by `{COMMAND}` (needs `pip install ".[train]"`).

## Data

{sources["functions"]:,} distinct functions from the Python standard library and this project's own
dependencies as installed ({sum(shares.values()):,} of them documented), and
{sources["synthetic_functions"]:,} synthetic ones, made from the {_utilities()} hand-written
utilities of `dart/train/utilities.txt` in several forms and from composed families (sums of
squares of even numbers, unit conversions, formulas). Each became chat pairs ("Write a Python
function ...", "What does ... do?", "Add a docstring ...", "Rename ...", "Repeat ...") or plain
code. Tests, generated files and near-duplicates (minhash) were left out, no package gives more
than a fixed number of functions. One function in fifty is held out by the hash of its name and
body, and every thirtieth utility is held out whole. Held-out synthetic functions of the other
utilities differ from trained ones in names and wording only.

| pool | documents | tokens | epochs seen |
|---|---|---|---|
{pools}

| source | licence | documented functions |
|---|---|---|
{licences}
| `dart/train/utilities.txt` | Apache-2.0 (this project) | {sources["synthetic_functions"]} |

## Target

Qwen3 architecture (loads as `Qwen3ForCausalLM`): {config["num_hidden_layers"]} layers, width
{config["hidden_size"]}, MLP {config["intermediate_size"]}, {config["num_attention_heads"]} heads
of {config["head_dim"]} ({config["num_key_value_heads"]} key/value), vocabulary
{config["vocab_size"]} (byte-level BPE), tied embeddings. Weights are stored in float16 and run in
float32. Trained on documents of at most {target_settings["length"]} tokens: longer chats leave
what it knows.

{target_end["step"]:,} steps of {target_settings["rows"]} x {target_settings["length"]} tokens,
{target_end["tokens"]:,} tokens in all, {target_end["seconds"] / 60:.0f} minutes of a shared
two-core CPU. Muon (rate {target_settings["matrix_rate"]:g}) for hidden matrices, AdamW
({target_settings["vector_rate"]:g}) for the rest, warm-up, plateau, linear decay to 0 over the
last {target_settings["decay"]:.0%}, in which the share of short and synthetic pairs grows; prompts
weigh {target_settings["prompt_weight"]:g}; seed {target_settings["seed"]}; bf16 autocast. The
published run was given {target_settings["minutes"]:g} minutes and its schedule followed the clock,
so the script, which asks for the same number of steps, comes close to it but not bit by bit; nor do
other versions of the packages give the same corpus.

Loss on held-out answers, nats per token: {target_end["held_out_synthetic"]:.3f} synthetic,
{target_end["held_out_corpus"]:.3f} corpus.

## DART head

One layer of the target's width, draft length {head_settings["draft_length"]} (8 predicted
positions), full vocabulary; {_millions(head_settings["parameters"])} parameters. Prefix-shared
masked training, loss sum_t 0.6^(t-1) KL(target || draft_t), on the target's own answers
({head_settings["own_share"]:.0%} of the tokens: greedy, T=0.8, T=1.0) and the corpus.
{head_end["step"]:,} steps of {head_settings["rows"]} x {head_settings["length"]} tokens with
{head_settings["anchors"]} prefixes each, {head_end["seconds"] / 60:.0f} minutes.

Held-out loss {head_end["held_out_loss"]:.3f}; top-1 agreement with the target at positions 1 to 8:
{_shares(head_end["held_out_accuracy"])}.

{_eagle3_section(run, head_end)}## N-gram store

Order {ngram["order"]}, {ngram["nodes"]:,} nodes, {ngram["bytes"]:,} bytes
({ngram["bytes"] / ngram["nodes"]:.2f} a node, with rounded probabilities), counted on the training
documents of the pools {", ".join(ngram["pools"])} (own: the target's own answers).

{_acceptance_section(run)}## How good it is

Shares of answers that end by themselves within 300 tokens; whose code fence is closed and parses
(of those that ask for code); that loop (one period repeated over 24 tokens and four times); and
that are good in all three ways. The examples ask for utilities that the target was trained on in
other forms; half of the held-out prompts are synthetic.

| prompts | answers | ended | valid code | loops | good | tokens |
|---|---|---|---|---|---|---|
{_rate_rows(rates)}

Tau, tokens per target forward (greedy or sampled, drafted nodes a step). DART's is high on the
examples because the store has counted the corpus their utilities are in; the held-out prompts show
what to expect of others:

| decoder, prompts, temperature, tree | tau | without looping texts | loops |
|---|---|---|---|
{_tau_rows(rates)}

## Files

| file | bytes |
|---|---|
{files}
"""


def _eagle3_section(run: Path, dart_end: dict[str, Any]) -> str:
    """The card's words on the EAGLE3 head, none where the run has not trained one."""
    if not (run / "eagle3").exists():
        return ""
    settings, lines = _settings_and_metrics(run / "eagle3-run")
    end = lines[-1]
    return f"""## EAGLE3 head

One layer of the same sizes, full vocabulary; {_millions(settings["parameters"])} parameters.
Training-time test: unrolled {settings["unrolled"]} steps on its own outputs, loss
sum_t 0.8^(t-1) KL(target || draft_t). Same documents, batches, order, optimizer and schedule as the
DART head's: {end["step"]:,} steps of {settings["rows"]} x {settings["length"]}
tokens ({_passes(end)} passes over the target's own answers; the DART head saw
{_passes(dart_end)}) with {settings["anchors"]} prefixes each,
{end["seconds"] / 60:.0f} minutes.

Held-out loss {end["held_out_loss"]:.3f}; top-1 agreement with the target at unrolled steps 1
to {settings["unrolled"]}, the true tokens given: {_shares(end["held_out_accuracy"])}.
(The DART head predicts its positions without them, so the two rows do not compare.)

"""


def _acceptance_section(run: Path) -> str:
    """The card's words on `dart/acceptance.json`, none where nothing was fitted."""
    if not (run / "calibration.json").exists():
        return ""
    report = _read(run / "calibration.json")
    count = sum(report["texts"].values())
    rows = "\n".join(
        f"| {each['candidates']:,} | {each['predicted']:.1%} | {each['observed']:.1%} |"
        for each in report["sources"]["both"]["fitted"]["bins"]
    )
    return f"""## Acceptance model

`dart/acceptance.json`: for each choice of n-gram sources a logistic regression per level on the
logarithms of the head's odds and of the n-gram probability, the store's and the text's own, by
matched length, fitted to four fifths of {count} of the target's own answers to requests, edits,
chats and prose, of which the store has counted none and the benchmark asks none. On the last fifth,
with both sources, the head's candidates by predicted probability that the target accepts them
behind an accepted parent:

| candidates | predicted | observed |
|---|---|---|
{rows}

"""


def _rate_rows(rates: dict[str, Any]) -> str:
    return "\n".join(
        f"| {name.replace('_', ' ')} | {row['answers']} | {row['ended']:.1%} | "
        f"{row['valid_code']:.1%} | {row['loops']:.1%} | {row['good']:.1%} | "
        f"{row['mean_tokens']:.0f} |"
        for name, row in rates.items()
        if name != "tau"
    )


def _tau_rows(rates: dict[str, Any]) -> str:
    return "\n".join(
        f"| {name} | {row['tau']:.2f} | {row['tau_without_loops']:.2f} | {row['loops']:.1%} |"
        for name, row in rates.get("tau", {}).items()
    )


def _shares(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1%}" for value in values)


def _passes(last_line: dict[str, Any]) -> str:
    return f"{last_line['epochs']['own']:.1f}"


def _settings_and_metrics(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return _read(folder / "settings.json"), [json.loads(line) for line in lines]


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _utilities() -> int:
    from dart.train.synthetic import read_utilities

    return len(read_utilities())


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f}M"
