"""Training: corpus, packing, losses, masks, resume. Tiny models, no corpus on disk, seconds."""

from __future__ import annotations

import ast
import dataclasses
import json

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM

from dart.cache import KVCache
from dart.layers import rotary_tables
from dart.train import corpus, eagle3, pairs, synthetic
from dart.train.continuations import continuations, generate_batch
from dart.train.dart import DartTraining, build_head, predictions, train_dart
from dart.train.dataset import Packer, Shard, encode, load_shards, save_shards
from dart.train.eagle3 import Eagle3Training, train_eagle3
from dart.train.evaluate import code_of, judge
from dart.train.head import aux_layers, fold_scales
from dart.train.losses import divergence, position_weighted
from dart.train.masking import (
    draw_anchors,
    prediction_rows,
    training_mask,
    training_positions,
    unrolled_mask,
)
from dart.train.optim import rate_factor
from dart.train.target import TargetTraining, build_target, mixture_at, train_target
from dart.train.tokenizer import chat_prefix, load_tokenizer, save_tokenizer, train_tokenizer

VOCABULARY = 64

SOURCE = '''
def first_words(text, count):
    """Return the first words of a text.

    More about it.
    """
    words = text.split()
    return words[:count]


class Holder:
    def hold(self, item):
        """Keep an item for later."""
        self.items.append(item)
        return len(self.items)


def stub(x):
    """Do nothing at all here."""
    raise NotImplementedError


def plain(values):
    total = 0
    for value in values:
        total += value
    return total
'''


def tiny_settings(**changes) -> TargetTraining:
    settings = TargetTraining(
        hidden_size=32,
        intermediate_size=48,
        layers=7,
        heads=2,
        kv_heads=1,
        head_dim=16,
        max_positions=64,
        rows=2,
        length=32,
        steps=8,
        compile=False,
        eval_every=1000,
        save_every=1000,
    )
    return dataclasses.replace(settings, **changes)


def tiny_shard(documents: int, *, seed: int, longest: int = 20) -> Shard:
    random = np.random.default_rng(seed)
    lengths = random.integers(6, longest, documents)
    return Shard(
        random.integers(3, VOCABULARY, lengths.sum()).astype(np.uint16),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.full(documents, 3, np.int64),
    )


def tiny_shards(documents: int, *, seed: int) -> dict[str, Shard]:
    return {
        pool: tiny_shard(documents, seed=seed + i)
        for i, pool in enumerate(("synthetic", "short", "long", "plain"))
    }


@pytest.fixture(scope="module")
def target() -> Qwen3ForCausalLM:
    model = build_target(tiny_settings(), VOCABULARY, None)
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def tokenizer():
    texts = [f.documented for f in synthetic.build_synthetic(per_utility=1)[:300]]
    return train_tokenizer(texts, size=600)


class TestCorpus:
    def test_functions_are_found_with_and_without_docstring(self, tmp_path):
        """A source whose functions are lost, or whose stubs are kept, spoils the corpus."""
        path = tmp_path / "module.py"
        path.write_text(SOURCE)
        found = {f.name: f for f in corpus.read_functions(path, "here")}
        assert set(found) == {"first_words", "hold", "plain"}
        words = found["first_words"]
        assert words.summary == "Return the first words of a text."
        assert '"""' not in words.bare
        assert words.documented.count('"""') == 2
        assert "More about it" not in words.documented
        assert found["hold"].is_method
        assert not words.is_method
        for function in found.values():
            ast.parse(function.documented)
            ast.parse(function.bare)

    def test_near_duplicates_are_dropped(self):
        """Generated classes that differ in a name would take over."""
        body = "\n".join(f"    value_{i} = compute(value_{i - 1}, {i})" for i in range(1, 12))
        one = f"def make(self):\n{body}\n    return value_11"
        two = one.replace("value_11", "last")
        other = "def read(path):\n    with open(path) as file:\n        return file.read().split()"
        seen = corpus.NearDuplicates()
        assert [seen.seen(text) for text in (one, two, other, other)] == [False, True, False, True]

    def test_pairs_parse_and_the_split_is_by_function(self):
        """A held-out function met in training in other words would flatter the held-out loss."""
        functions = synthetic.build_synthetic(per_utility=2)[:400]
        documents = [d for f in functions for d in pairs.documents(f, seed=0, copies=2)]
        kinds = {d.kind for d in documents}
        assert {"write", "explain", "docstring", "rename", "repeat", "complete"} <= kinds
        for document in documents:
            if document.kind != "explain":
                code = code_of(document.answer)
                assert code is not None, document
                ast.parse(code)
            assert json.loads(json.dumps(document.to_json())) == document.to_json()
        train = {d.key for d in documents if not d.is_held_out}
        held_out = {d.key for d in documents if d.is_held_out}
        assert held_out
        assert not train & held_out

    def test_rename_renames_every_use(self):
        """A name that is left behind makes the answer wrong code."""
        function = synthetic.make(
            "add", "Add two numbers.", "def add(left, right):\n    return left + right"
        )
        assert function is not None
        import random

        found = pairs.rename(function, random.Random(0))
        assert found is not None
        prompt, answer = found
        old, new = prompt.split("`")[1], prompt.split("`")[3]
        assert new in answer
        assert f"{old}(" not in answer
        assert f" {old} " not in answer

    def test_utilities_fill_without_leftovers(self):
        """A placeholder without a value would be written into the corpus."""
        functions = synthetic.build_synthetic(per_utility=3)
        assert len({f.documented for f in functions}) == len(functions)
        assert not [f for f in functions if "$" in f.documented]
        assert len(synthetic.read_utilities()) >= 150


class TestTokens:
    def test_text_survives_and_loads_again(self, tokenizer, tmp_path):
        """A tokenizer that changes indentation or loses its template cannot serve the demo."""
        save_tokenizer(tokenizer, tmp_path)
        loaded = load_tokenizer(tmp_path)
        text = "```python\ndef f(x):\n    if x:\n        return 'é€'\n\n\n    return 1\n```"
        assert loaded.decode(loaded(text)["input_ids"]) == text
        messages = [{"role": "user", "content": "Hi."}]
        rendered = loaded.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert rendered == chat_prefix("Hi.")
        assert loaded.eos_token == "<|im_end|>"
        assert len(loaded("\n        ")["input_ids"]) == 1

    def test_encode_marks_where_answers_begin(self, tokenizer):
        """A prompt counted as an answer would be trained on."""
        document = pairs.Document(
            kind="write", prompt="Write it.", answer="ok", package="x", key="0", is_held_out=False
        )
        shard = encode(tokenizer, [document], max_length=64)["short"]
        ids = shard.document(0).tolist()
        assert tokenizer.decode(ids[: shard.answers[0]]) == chat_prefix("Write it.")
        assert tokenizer.decode(ids[shard.answers[0] :]) == "ok<|im_end|>"

    def test_rows_hold_whole_documents(self, tmp_path):
        """A label that crosses into the next document teaches nonsense."""
        path = tmp_path / "shards.npz"
        save_shards(tiny_shards(30, seed=0), path)
        shards = load_shards(path)
        documents = {tuple(s.document(i)) for s in shards.values() for i in range(len(s))}
        packer = Packer(shards, rows=3, length=48, seed=1, prompt_weight=0.25)
        batch = packer.next_batch({"short": 0.5, "plain": 0.5})
        for row in range(3):
            for number in range(int(batch.segments[row].max()) + 1):
                where = batch.segments[row] == number
                ids = batch.tokens[row][where]
                assert tuple(ids.tolist()) in documents
                assert batch.labels[row][where][:-1].tolist() == ids[1:].tolist()
                assert batch.weights[row][where].tolist() == [0.25] * 2 + [1.0] * (len(ids) - 3) + [
                    0
                ]
                assert batch.positions[row][where].tolist() == list(range(len(ids)))
        assert (batch.weights[batch.segments < 0] == 0).all()

    def test_packer_goes_on_where_it_was(self):
        """A resumed run must see the documents it would have seen."""
        mixture = {"short": 0.5, "long": 0.5}
        one, two = (
            Packer(tiny_shards(9, seed=0), rows=2, length=40, seed=1, prompt_weight=0.2)
            for _ in range(2)
        )
        for _ in range(3):
            one.next_batch(mixture)
        two.load_state_dict(one.state_dict())
        for left, right in zip(one.next_batch(mixture), two.next_batch(mixture), strict=True):
            assert torch.equal(left, right)


class TestSchedule:
    def test_rates_warm_up_stay_and_decay(self):
        """A rate that does not end at zero leaves the target noisy."""
        assert rate_factor(0.01) == pytest.approx(0.5)
        assert rate_factor(0.3) == 1.0
        assert rate_factor(0.8, decay=0.4) == pytest.approx(0.5)
        assert rate_factor(1.0) == 0.0

    def test_mixture_sums_to_one(self):
        """Shares are of the whole."""
        for progress in (0.0, 0.7, 1.0):
            assert sum(mixture_at(progress, 0.4).values()) == pytest.approx(1.0)

    def test_settings_demand_one_length(self):
        """Steps and minutes together would contradict each other."""
        with pytest.raises(ValueError, match="either steps or minutes"):
            tiny_settings(minutes=1.0)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch is older than 2.9")
class TestTarget:
    def test_loss_falls(self, tmp_path):
        """Training that does not learn two documents by heart is broken."""
        shards = tiny_shards(2, seed=0)
        settings = tiny_settings(steps=60, eval_every=1000)
        train_target(settings, shards, tiny_shards(0, seed=1), None, VOCABULARY, tmp_path)
        lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        assert losses[-1] < 0.7 * losses[0]

    def test_resume_is_bit_equal(self, tmp_path):
        """A run that was interrupted must end in the same weights."""
        settings = tiny_settings(steps=6)
        shards, held_out = tiny_shards(12, seed=0), tiny_shards(4, seed=9)

        def run(folder, stop_after=None):
            return train_target(
                settings,
                shards,
                held_out,
                None,
                VOCABULARY,
                tmp_path / folder,
                stop_after=stop_after,
            )

        whole = run("whole")
        assert run("parts", stop_after=3) is None
        parts = run("parts")
        assert whole is not None
        assert parts is not None
        whole, parts = whole.state_dict(), parts.state_dict()
        assert all(torch.equal(whole[name], parts[name]) for name in whole)


class TestMask:
    def test_hand_drawn(self):
        """Two documents (rows 0-2 and 3-4), blocks of two behind rows 1 and 3.

        A block must see its own prefix and itself alone, or training leaks later tokens.
        """
        segments = torch.tensor([[0, 0, 0, 1, 1]])
        mask = training_mask(segments, torch.tensor([[1, 3]]), 2)[0, 0].int()
        assert mask.tolist() == [
            [1, 0, 0, 0, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 1, 0, 0, 0, 0, 0],
            [0, 0, 0, 1, 1, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 1, 0, 0, 0],
            [1, 1, 0, 0, 0, 1, 1, 0, 0],
            [0, 0, 0, 1, 0, 0, 0, 1, 0],
            [0, 0, 0, 1, 0, 0, 0, 1, 1],
        ]
        positions = torch.tensor([[0, 1, 2, 0, 1]])
        where = training_positions(positions, torch.tensor([[1, 3]]), 2)
        assert where.tolist() == [[0, 1, 2, 0, 1, 2, 3, 1, 2]]

    def test_predictions_stop_with_the_answer(self):
        """A prediction beyond the document's end has no truth to be compared with."""
        segments = torch.tensor([[0, 0, 0, 0, 1, 1, 1, -1]])
        weights = torch.tensor([[0.0, 1, 1, 0, 1, 1, 0, 0]])
        rows, counts = prediction_rows(weights, segments, torch.tensor([[0, 4, 5]]), 3)
        assert rows.tolist() == [[[1, 2, 3], [5, 6, 7], [6, 7, 7]]]
        assert counts.tolist() == [[[True, True, False], [True, False, False], [False] * 3]]
        chosen = draw_anchors(weights, segments, 2, torch.Generator().manual_seed(0))
        assert set(chosen[0].tolist()) <= {0, 1, 4}

    def test_training_equals_inference_prefix_by_prefix(self, target):
        """The head must be trained on what it computes when it drafts."""
        head = build_head(target, draft_length=3, seed=0)
        torch.manual_seed(5)
        for parameter in head.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.2)
        tokens = torch.randint(3, VOCABULARY, (1, 12))
        with torch.no_grad():
            states = target.model(tokens, output_hidden_states=True, use_cache=False).hidden_states
            aux = torch.cat([states[layer] for layer in aux_layers(target)], dim=-1)
            embeddings = target.model.embed_tokens(tokens.roll(-1, dims=1))
            anchors = torch.tensor([[2, 5, 9]])
            positions = torch.arange(12)[None]
            together = predictions(
                head, aux, embeddings, positions, torch.zeros(1, 12).long(), anchors
            )
            for number, anchor in enumerate(anchors[0].tolist()):
                cache = KVCache(32, [torch.device("cpu")])
                rows = slice(0, anchor + 1)
                alone = head.logits(head(aux[:, rows], embeddings[:, rows], cache))
                assert torch.allclose(together[0, number], alone, atol=1e-4)

    def test_unrolled_steps_see_what_drafted_tokens_see(self):
        """Slowly: a chain sees its document up to its anchor, and its own earlier rows."""
        segments = torch.tensor([[0, 0, 0, 1, 1, 1, -1], [0, 0, 1, 1, 1, 1, 1]])
        anchors = torch.tensor([[1, 2, 4], [0, 4, 6]])
        for step in (1, 2, 3):
            mask = unrolled_mask(segments, anchors, step)[:, 0]
            assert mask.shape == (2, 3, 7 + 3 * step)
            for row in range(2):
                for chain, anchor in enumerate(anchors[row].tolist()):
                    document = segments[row, anchor]
                    seen = [i for i in range(anchor + 1) if segments[row, i] == document]
                    seen += [7 + 3 * earlier + chain for earlier in range(step)]
                    assert mask[row, chain].nonzero().flatten().tolist() == seen

    def test_unrolled_training_equals_drafting_step_by_step(self, target):
        """The EAGLE3 head must be trained on what it computes when it drafts."""
        head = eagle3.build_head(target, seed=0)
        torch.manual_seed(5)
        for parameter in head.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.2)
        # Two documents in one row: the second one's positions begin again.
        tokens = torch.randint(3, VOCABULARY, (1, 16))
        aux, embeddings = torch.randn(1, 16, 96), target.model.embed_tokens(tokens.roll(-1, 1))
        segments = torch.tensor([[0] * 5 + [1] * 11])
        positions = torch.cat([torch.arange(5), torch.arange(11)])[None]
        anchors = torch.tensor([[0, 6, 9]])
        with torch.no_grad():
            together = eagle3.predictions(
                head, aux, embeddings, positions, segments, anchors, unrolled=4
            )
            assert together.shape == (1, 3, 4, VOCABULARY)
            for number, anchor in enumerate(anchors[0].tolist()):
                begin = 0 if anchor < 5 else 5
                cache = KVCache(32, [torch.device("cpu")])
                cos, sin = rotary_tables(head.config, torch.arange(16), torch.float32)
                rows = slice(begin, anchor + 1)
                known = anchor + 1 - begin
                hidden = head(
                    head.features(aux[:, rows]),
                    embeddings[:, rows],
                    (cos[:known], sin[:known]),
                    None,
                    cache,
                )[:, -1:]
                cache.commit(known)
                for step in range(4):
                    expected = head.logits(hidden)[0, 0]
                    assert torch.allclose(together[0, number, step], expected, atol=1e-4)
                    row = slice(anchor + step + 1, anchor + step + 2)
                    here = slice(known + step, known + step + 1)
                    bias = torch.zeros(1, cache.length + 1)
                    hidden = head(hidden, embeddings[:, row], (cos[here], sin[here]), bias, cache)
                    cache.commit(1)

    def test_folded_scales_change_nothing(self, target):
        """A head trained on scaled taps must say the same of the taps as they are."""
        head = build_head(target, draft_length=2, seed=0)
        torch.manual_seed(6)
        aux, embeddings = torch.randn(1, 8, 96), torch.randn(1, 8, 32)
        scales = torch.rand(96) * 40 + 1
        rest = (embeddings, torch.arange(8)[None], torch.zeros(1, 8).long(), torch.tensor([[4]]))
        scaled = predictions(head, aux / scales, *rest)
        assert torch.allclose(predictions(fold_scales(head, scales), aux, *rest), scaled, atol=1e-5)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch is older than 2.9")
class TestHead:
    def test_loss_is_the_formula(self):
        """The weighted divergence, written out slowly."""
        torch.manual_seed(0)
        target, draft = torch.randn(1, 2, 3, 5), torch.randn(1, 2, 3, 5)
        counts = torch.tensor([[[True, True, False], [True, True, True]]])
        expected = 0.0
        for anchor in range(2):
            for step in range(3):
                if counts[0, anchor, step]:
                    p = target[0, anchor, step].softmax(0)
                    q = draft[0, anchor, step].softmax(0)
                    expected += 0.6**step * float((p * (p / q).log()).sum()) / 2
        loss = position_weighted(divergence(target, draft), counts, 0.6)
        assert float(loss) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("kind", ["dart", "eagle3"])
    def test_loss_falls_and_resume_is_bit_equal(self, target, tmp_path, kind):
        """An interrupted head run must end in the same weights; any run must learn."""
        shards = {"own": tiny_shard(4, seed=0), "corpus": tiny_shard(4, seed=1)}
        none = {"own": tiny_shard(0, seed=2), "corpus": tiny_shard(0, seed=2)}
        sizes = {"rows": 2, "length": 32, "anchors": 8, "steps": 40, "compile": False}

        def run(folder, stop_after=None):
            rest = (target, shards, none, tmp_path / folder)
            if kind == "dart":
                settings = DartTraining(draft_length=3, **sizes)
                return train_dart(settings, *rest, stop_after=stop_after)
            settings = Eagle3Training(unrolled=3, **sizes)
            return train_eagle3(settings, *rest, stop_after=stop_after)

        whole = run("whole")
        assert run("parts", stop_after=15) is None
        parts = run("parts")
        assert whole is not None
        assert parts is not None
        whole, parts = whole.state_dict(), parts.state_dict()
        assert all(torch.equal(whole[name], parts[name]) for name in whole)
        lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
        losses = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
        assert losses[-1] < 0.8 * losses[0]

    def test_accuracy_is_told_step_by_step(self, target, tmp_path):
        """A head that only learns its first step would look like one that learned all."""
        shards = {"own": tiny_shard(6, seed=0), "corpus": tiny_shard(6, seed=1)}
        settings = Eagle3Training(unrolled=4, rows=2, length=32, anchors=8, steps=1, compile=False)
        train_eagle3(settings, target, shards, {"own": tiny_shard(6, seed=2)}, tmp_path)
        last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
        assert len(last["held_out_accuracy"]) == 4
        assert all(0 <= value <= 1 for value in last["held_out_accuracy"])
        assert last["held_out_loss"] > 0


class TestAnswers:
    def test_judgement(self, tokenizer):
        """Code that does not parse, is not fenced or does not end is no good answer."""
        eos = tokenizer.eos_token_id
        for text, ends, good in (
            ("```python\nx = 1\n```", True, True),
            ("```python\nx = 1\n```", False, False),
            ("```python\nx = \n```", True, False),
            ("x = 1", True, False),
        ):
            ids = tokenizer(text)["input_ids"] + [eos] * ends
            assert judge("Write it.", ids, tokenizer).is_good is good

    def test_batched_generation_equals_single(self, tokenizer):
        """Left padding must not change what the target says."""
        settings = tiny_settings(max_positions=256)
        model = build_target(settings, len(tokenizer), tokenizer).eval()
        torch.manual_seed(0)
        for parameter in model.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.2)
        prompts = ["Write it.", "Write a Python function to reverse a string."]

        def generate(some):
            return generate_batch(model, tokenizer, some, max_new_tokens=8, temperature=0.0)

        together = generate(prompts)
        assert together == [generate([prompt])[0] for prompt in prompts]
        # Three texts in two slots, each with a position of its own, say the same.
        documents = continuations(
            model,
            tokenizer,
            [*prompts, prompts[0]],
            tokens=24,
            seed=0,
            slots=2,
            max_new_tokens=8,
            temperatures=(0.0,),
            dtype=torch.float32,
        )
        expected = {(*prompt, *answer) for prompt, answer in together}
        assert {tuple(ids) for ids, _ in documents} == expected
