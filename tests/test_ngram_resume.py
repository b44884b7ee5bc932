"""`ngram build` that is interrupted, goes on, or meets the work of another build."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from dart import ngram
from dart.__main__ import main
from dart.errors import CheckpointError, ConfigError
from dart.ngram_build import build, local_engine, steps, work_folder
from dart.ngram_build.build import Summary, build_from_shards
from dart.ngram_build.config import StoreConfig
from dart.ngram_build.local_engine import LocalEngine
from dart.ngram_build.shards import Shard, list_shards
from dart.ngram_build.text_encoder import TextEncoder, split
from dart.ngram_build.work_folder import WorkFolder, folder_of
from tests.conformance import CONFORMANCE

TOKENIZER = CONFORMANCE / "target"
CONFIG = StoreConfig(order=3, exact=True, min_counts=(1, 1, 2))


@dataclass(frozen=True)
class Texts:
    """A shard in memory."""

    key: str
    texts: tuple[str, ...]

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.texts))

    def documents(self, _render: Any, on_broken: Any) -> Iterator[str]:
        for text in self.texts:
            if text == "broken":
                if on_broken is None:
                    raise ConfigError(f"{self.key}: broken")
                on_broken(f"{self.key}: broken")
                continue
            yield text


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return TextEncoder(AutoTokenizer.from_pretrained(TOKENIZER))


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches, runs to combine, and parts, of a few texts."""
    monkeypatch.setattr(local_engine, "MERGED_AT_ONCE", 3)
    monkeypatch.setattr(local_engine, "SMALLEST_PART_RECORDS", 10)
    monkeypatch.setattr(local_engine, "PARTS_PER_WORKER", 2)
    monkeypatch.setattr(local_engine, "SMALLEST_BATCH_BYTES", 1)


def make_shards(count: int = 5) -> list[Any]:
    random = np.random.default_rng(0)
    words = random.integers(0, 20, (count, 4, 10))
    return [
        Texts(f"shard {i}", tuple(" ".join(f"w{w}" for w in text) for text in shard))
        for i, shard in enumerate(words)
    ]


def engine(workers: int = 1) -> LocalEngine:
    return LocalEngine(memory=12 * 100 * workers, workers=workers, tell=lambda *_: None)


def run(shards: Sequence[Any], encoder: TextEncoder, store: Path, **options: Any) -> Summary:
    return build_from_shards(shards, encoder, CONFIG, store, engine(), **options)


def expected_bytes(shards: Sequence[Any], encoder: TextEncoder, folder: Path) -> bytes:
    texts = [text for shard in shards for text in shard.texts if text != "broken"]
    store = ngram.build(
        encoder.encode(texts),
        CONFIG.order,
        folder / "expected.ngram",
        exact=CONFIG.exact,
        min_counts=CONFIG.min_counts,
    )
    return Path(store.path).read_bytes()


class Events:
    """Lets the event number `at` fail: a call, or a return, of one of the functions."""

    def __init__(self, patch: pytest.MonkeyPatch, targets: list[tuple[Any, str]], at: int) -> None:
        self.count, self._at = 0, at
        for owner, name in targets:
            patch.setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._happen()
            result = function(*args, **kwargs)
            self._happen()
            return result

        return wrapped

    def _happen(self) -> None:
        self.count += 1
        if self.count - 1 == self._at:
            raise KeyboardInterrupt


STEPS = [
    (steps, "count_shards"),
    (steps, "combine_runs"),
    (steps, "merge_range"),
    (steps._core, "join_level"),
    (steps._core, "encode_levels"),
    (work_folder, "_write"),
    (WorkFolder, "remove_runs"),
]


def test_goes_on_after_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: TextEncoder
) -> None:
    """Prevents text counted twice or not at all, and stores of half a step, after a crash."""
    shards = make_shards(4)
    expected = expected_bytes(shards, encoder, tmp_path)
    at, is_over = 0, False
    while not is_over:
        store = tmp_path / f"{at}.ngram"
        with monkeypatch.context() as patch:
            events = Events(patch, STEPS, at)
            try:
                run(shards, encoder, store)
            except KeyboardInterrupt:
                assert folder_of(store).is_dir()
                assert not store.exists() or store.read_bytes() == expected
            is_over = events.count <= at
        run(shards, encoder, store)
        assert store.read_bytes() == expected, at
        assert not folder_of(store).exists()
        at += 1
    assert at > 4 * len(STEPS)


def test_what_is_counted_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: TextEncoder
) -> None:
    """Prevents a second start from being as long as the first."""
    shards = make_shards()
    store = tmp_path / "x.ngram"
    with monkeypatch.context() as patch:
        Events(patch, [(steps, "count_shards")], at=5)  # the third one has returned
        with pytest.raises(KeyboardInterrupt):
            run(shards, encoder, store)
    told: list[int] = []
    read: list[str] = []
    documents = Texts.documents

    def noted(shard: Texts, *args: Any) -> Iterator[str]:
        read.append(shard.key)
        return documents(shard, *args)

    monkeypatch.setattr(Texts, "documents", noted)
    summary = run(shards, encoder, store, on_resume=told.append)
    assert told == [5 - len(read)]
    assert 0 < len(read) < 5
    assert (summary.documents, summary.tokens) == (20, 200)


def test_other_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: TextEncoder
) -> None:
    """Prevents one store of two texts, orders or tokenizers."""
    shards = make_shards()
    store = tmp_path / "x.ngram"
    with monkeypatch.context() as patch:
        Events(patch, [(steps, "merge_range")], at=0)
        with pytest.raises(KeyboardInterrupt):
            run(shards, encoder, store)
    for config, given, message in (
        (StoreConfig(order=4, exact=True), shards, "order 3, not 4"),
        (StoreConfig(order=3, exact=True), shards, "min_counts 1 1 2, not 1 1 1"),
        (CONFIG, shards[:4], "of 5 shards of input, not of 4"),
        (CONFIG, [*shards, Texts("new", ("w1",))], "does not know new"),
    ):
        with pytest.raises(ConfigError, match=f"{message}.*--restart"):
            build_from_shards(given, encoder, config, store, engine())
    with WorkFolder.open(tmp_path / "y.ngram", {}, []) as _:
        with pytest.raises(ConfigError, match="another process is working"):
            run(shards, encoder, tmp_path / "y.ngram")
        with pytest.raises(ConfigError, match="another process is working"):
            run(shards, encoder, tmp_path / "y.ngram", restart=True)
    told: list[int] = []
    run(shards[:4], encoder, store, restart=True, on_resume=told.append)
    assert told == []
    assert store.read_bytes() == expected_bytes(shards[:4], encoder, tmp_path)


def test_foreign_folders_are_left_alone(tmp_path: Path, encoder: TextEncoder) -> None:
    """Prevents the removal of files that happen to lie where the work folder would."""
    mine = folder_of(tmp_path / "x.ngram") / "runs" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(ConfigError, match="not a folder of unfinished work"):
        run(make_shards(), encoder, tmp_path / "x.ngram")
    with pytest.raises(ConfigError, match="not a folder of unfinished work"):
        run(make_shards(), encoder, tmp_path / "x.ngram", restart=True)
    assert mine.read_text() == "mine"
    with pytest.raises(CheckpointError, match="expected an existing folder"):
        run(make_shards(), encoder, tmp_path / "no" / "x.ngram")


def test_broken_documents_stop_or_are_counted(tmp_path: Path, encoder: TextEncoder) -> None:
    """Prevents one bad line from ending a day's work where that was not wanted, and silence."""
    shards = [*make_shards(2), Texts("bad", ("w1 w2", "broken", "w3", "broken"))]
    with pytest.raises(ConfigError, match="bad: broken"):
        run(shards, encoder, tmp_path / "x.ngram")
    summary = run(shards, encoder, tmp_path / "y.ngram", skip_broken=True)
    assert (summary.documents, summary.broken, summary.first_broken) == (10, 2, "bad: broken")
    assert (tmp_path / "y.ngram").read_bytes() == expected_bytes(shards, encoder, tmp_path)


def test_empty_inputs(tmp_path: Path, encoder: TextEncoder) -> None:
    """Prevents trouble with nothing: no shards, no documents, no words."""
    for index, shards in enumerate(([], [Texts("a", ())], [Texts("a", ("", ""))])):
        store = tmp_path / f"{index}.ngram"
        run(shards, encoder, store)
        assert store.read_bytes() == expected_bytes(shards, encoder, tmp_path)


def test_ids_are_the_tokenizers(encoder: TextEncoder) -> None:
    """Prevents other ids than the model sees, and leftovers of truncation and padding."""
    demo = Path(__file__).parents[1] / "assets" / "demo" / "target"
    tokenizer = AutoTokenizer.from_pretrained(demo)
    tokenizer.backend_tokenizer.enable_truncation(3)
    code = Path(__file__).read_text(encoding="utf-8")
    texts = [code, "", "<|im_end|>\n\n  x", " a\tb", tokenizer.eos_token * 2]
    found = list(TextEncoder(tokenizer).encode(texts))
    tokenizer.backend_tokenizer.no_truncation()
    expected = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert [ids.tolist() for ids in found] == expected
    assert all(ids.dtype == np.int32 for ids in found)
    assert encoder.fingerprint != TextEncoder(tokenizer).fingerprint


def test_long_texts_are_cut_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents a book from being tokenised at once, and other ids where it is cut."""
    demo = Path(__file__).parents[1] / "assets" / "demo" / "target"
    tokenizer = AutoTokenizer.from_pretrained(demo)
    code = Path(__file__).read_text(encoding="utf-8")
    monkeypatch.setattr("dart.ngram_build.text_encoder.GROUP_CHARACTERS", 200)
    pieces = list(TextEncoder(tokenizer).encode_documents([code, "x"]))
    assert len(pieces) > len(code) // 400
    assert sum(characters for _, characters, _ in pieces) == len(code) + 1
    assert [is_end for _, _, is_end in pieces].count(True) == 2
    expected = tokenizer(code, add_special_tokens=False)["input_ids"]
    assert np.concatenate([ids for ids, _, _ in pieces[:-1]]).tolist() == expected
    assert [text for text, _ in split("a" * 10, 3)] == ["a" * 6, "aaaa"]


SLOW_COMMAND = """
import sys, time
from dart.__main__ import main
from dart.cli import ngram_build
from dart.ngram_build import local_engine
from dart.ngram_build.text_encoder import TextEncoder
ngram_build.SHARD_BYTES = {"local": 2000}
local_engine.SMALLEST_BATCH_BYTES = 1
encode = TextEncoder.encode
def slow(self, texts):
    time.sleep(0.2)
    return encode(self, texts)
TextEncoder.encode = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_killed_and_started_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sent: signal.Signals,
) -> None:
    """Prevents a process that was killed from costing more than what it had at hand."""
    texts = tmp_path / "t.jsonl"
    lines = [{"text": text} for shard in make_shards(80) for text in shard.texts]
    texts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    store = tmp_path / "x.ngram"
    command = ["ngram", "build", "--input", str(texts), "--tokenizer", str(TOKENIZER)]
    command += ["--output", str(store), "--order", "4", "--memory", "64M"]
    process = subprocess.Popen([sys.executable, "-c", SLOW_COMMAND, *command])
    done = folder_of(store) / "done.json"
    deadline = time.monotonic() + 60
    while not (done.is_file() and json.loads(done.read_text())["batches"]):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, sent)
    assert process.wait(10) == (-signal.SIGKILL if sent == signal.SIGKILL else 130)
    assert not store.exists()
    monkeypatch.setattr("dart.cli.ngram_build.SHARD_BYTES", {"local": 2000})
    assert main(command) == 0
    said = capsys.readouterr()
    assert "Going on: " in said.err
    assert "of 8 shards are counted" in said.err
    again = tmp_path / "again.ngram"
    assert main([*command, "--output", str(again), "--workers", "1", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["documents"], facts["tokens"]) == (320, 3200)
    assert facts["tokens_per_second"] > 0
    assert store.read_bytes() == again.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "again.ngram",
        "t.jsonl",
        "x.ngram",
    ]


def test_real_shards_are_built(tmp_path: Path, encoder: TextEncoder) -> None:
    """Prevents shards and builder from drifting apart."""
    text = tmp_path / "t.txt"
    text.write_text("w5 w9 w5", encoding="utf-8")
    shards: list[Shard] = list_shards([str(text)])
    build.build_from_shards(shards, encoder, CONFIG, tmp_path / "x.ngram", engine())
    assert ngram.NgramStore.open(tmp_path / "x.ngram").counts([5]) == 2
