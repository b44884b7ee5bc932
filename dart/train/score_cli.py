"""Steps of the training command line that are about the search's score.

python -m dart train texts --out runs/demo        the target's own answers, of several kinds
python -m dart train calibrate --out runs/demo    fit the score to four fifths, check on the last
python -m dart train plot --out runs/demo --results assets/results
python -m dart train prompts --out assets/demo/prompts
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dart.train.dataset import Shard, load_shards, make_shard, read_documents, save_shards

if TYPE_CHECKING:
    from dart.model.dart_model import DartModel
    from dart.train.calibrate import Observations
    from dart.train.prompts import Messages

ROOT = Path(__file__).resolve().parents[2]
LONGEST_EDITED = 700  # characters of a function, so that request and answer fit the target's length
TOP_K = 25  # candidates a level that are looked at
_CHECKED = 5  # every fifth text is not fitted to

AddStep = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_steps(step: AddStep) -> None:
    """Add the steps as subcommands."""
    sub = step("texts", run_texts, "let the target answer held-out prompts of several kinds")
    sub.add_argument("--count", type=int, default=200, help="texts of a kind, at the most")
    step("calibrate", run_calibrate, "fit the acceptance models of head and n-grams")
    sub = step("plot", run_plot, "publish how true the fit is, as figures and as a picture")
    sub.add_argument("--results", type=Path, default=Path("assets/results"))
    sub = step("prompts", run_prompts, "make the benchmark's edits and chats; --out: their folder")
    sub.add_argument("--count", type=int, default=48, help="prompts of a kind")


def run_texts(args: argparse.Namespace) -> int:
    """Write calibration.npz: texts by kind."""
    from dart.train.assets import held_out_prompts
    from dart.train.calibration_texts import answered, prompts_by_kind, prose

    model = _load(args.out)
    documents = read_documents(args.out / "corpus" / "heldout.jsonl")
    asked = {d.prompt for d in held_out_prompts(documents, count=240, seed=args.seed)}
    prompts = prompts_by_kind(
        documents,
        asked,
        prose(),
        lambda chat: answer(model, chat),
        count=args.count,
        seed=args.seed,
    )
    shards = {
        kind: make_shard(list(answered(model, tqdm(some, desc=kind), seed=args.seed)))
        for kind, some in prompts.items()
    }
    save_shards(shards, args.out / "calibration.npz")
    return 0


def run_calibrate(args: argparse.Namespace) -> int:
    """Write dart/acceptance.json, and calibration.json: how true it is on texts not fitted to."""
    from dart.acceptance import load_acceptance, save_acceptance
    from dart.context_store import DEFAULT_ORDER
    from dart.train.calibrate import fit
    from dart.train.reliability import figures

    model = _load(args.out)
    head, store = model.dart_head, model.store
    assert head is not None
    assert store is not None
    shards = load_shards(args.out / "calibration.npz")
    fitted_on, weights = _observed(model, shards, is_checked=False)
    models = fit(
        fitted_on,
        levels=head.config.draft_length + 1,
        order=store.order,
        context_order=DEFAULT_ORDER,
        weights=weights,
    )
    save_acceptance(args.out / "dart", models)
    models = load_acceptance(args.out / "dart")  # as rounded as it will be used
    checked_on, _ = _observed(model, shards, is_checked=True)
    report = {
        "command": f"python -m dart train calibrate --seed {args.seed}",
        "texts": {kind: len(shard) for kind, shard in shards.items()},
        "sources": figures(models, checked_on),
    }
    (args.out / "calibration.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


def _observed(
    model: DartModel, shards: dict[str, Shard], *, is_checked: bool
) -> tuple[Observations, NDArray[np.float64]]:
    """What is to be known of the texts that are fitted to, or of the others, and its weights.

    All kinds of text weigh the same, however long their answers are.
    """
    from dart.context_store import DEFAULT_ORDER
    from dart.train.calibrate import observe

    assert model.dart_head is not None
    assert model.store is not None
    found = {}
    for kind, shard in shards.items():
        chosen = [i for i in range(len(shard)) if (i % _CHECKED == _CHECKED - 1) == is_checked]
        texts = [(shard.document(i).tolist(), int(shard.answers[i])) for i in chosen]
        if not texts:
            continue
        progress = tqdm(texts, desc=f"{kind} to {'check' if is_checked else 'fit'}")
        found[kind] = observe(
            model.target, model.dart_head, model.store, progress,
            top_k=TOP_K, context_order=DEFAULT_ORDER,
        )  # fmt: skip
    positions = 0
    for some in found.values():
        some["position"] += positions
        positions = int(some["position"][-1]) + 1
    observed = np.concatenate([*found.values()])
    equal = len(observed) / len(found)
    weights = np.concatenate([np.full(len(some), equal / len(some)) for some in found.values()])
    return observed, weights


def run_plot(args: argparse.Namespace) -> int:
    """Write calibration.json and calibration.svg to the results' folder."""
    from dart.train.reliability_plot import svg

    text = (args.out / "calibration.json").read_text(encoding="utf-8")
    (args.results / "calibration.json").write_text(text, encoding="utf-8")
    picture = svg(json.loads(text)["sources"])
    (args.results / "calibration.svg").write_text(picture, encoding="utf-8")
    return 0


def run_prompts(args: argparse.Namespace) -> int:
    """Write edit.jsonl and chat.jsonl: of this project's own functions, which no corpus holds."""
    from dart.model.dart_model import DartModel
    from dart.train.prompts import chats, edits, own_functions

    functions = own_functions(ROOT)
    edited = edits(functions, seed=args.seed, longest=LONGEST_EDITED)
    rows: list[dict[str, Any]] = [
        {"prompt": prompt, "task": "edit", "kind": kind}
        for prompt, kind in islice(edited, args.count)
    ]
    _write_lines(args.out / "edit.jsonl", rows)
    model = DartModel.demo()
    # From the other end: not the functions of the edits.
    talked = chats(functions[::-1], lambda chat: answer(model, chat), seed=args.seed)
    rows = [{"messages": each, "task": "chat"} for each in islice(talked, args.count)]
    _write_lines(args.out / "chat.jsonl", rows)
    return 0


def answer(model: DartModel, messages: Messages) -> str:
    """The model's greedy answer."""
    ids = [
        token
        for step in model.stream(model.encode(messages), max_new_token_num=256)
        for token in step.tokens
    ]
    return model.tokenizer.decode(ids, skip_special_tokens=True)


def _load(run: Path) -> DartModel:
    from dart.model.dart_model import DartModel

    return DartModel.from_pretrained(run / "target", run / "dart", run / "ngram")


def _write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
