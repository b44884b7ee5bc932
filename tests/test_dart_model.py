"""DartModel: the calls of upstream's README, on the recorded checkpoints."""

from __future__ import annotations

import shutil

import pytest
import torch

from dart import TEMPLATE_REGISTRY, DartModel, dart_generate
from dart.config import NGRAM_SOURCES, SCORES
from dart.dart_head import DartDrafter
from dart.errors import CheckpointError, ConfigError, DeviceError
from tests.conftest import ARCHITECTURES, tiny_model


@pytest.fixture(scope="module")
def model(conformance, tmp_path_factory) -> DartModel:
    """Loaded as upstream's README does it."""
    import os

    os.environ["DART_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return DartModel.from_pretrained(
        base_model_name_or_path=conformance / "target",
        dart_model_name_or_path=conformance / "dart_head",
        ngram_model_name_or_path=conformance / "ngram",
        torch_dtype=torch.float32,
        low_cpu_mem_usage=True,
        device_map="auto",
        is_small_ngram=True,
    ).to("cpu")


def test_the_calls_of_upstreams_readme(model: DartModel) -> None:
    """Programs written for upstream run unchanged but for the paths."""
    model.eval()
    template = TEMPLATE_REGISTRY.get("qwen")
    assert template is not None
    assert TEMPLATE_REGISTRY["qwen"].system_prompt
    text = template.format(messages=[{"role": "user", "content": "w5 w9"}])
    assert text.endswith("<|im_start|>assistant\n")
    ids = model.tokenizer(["w5 w9 w33"], return_tensors="pt").input_ids
    options = {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "max_new_token_num": 24}
    output = model.dart_generate(ids, **options, max_length=2048)
    assert output.dtype == torch.int64
    assert output.shape[0] == 1
    assert output[0, :3].tolist() == ids[0].tolist()
    assert torch.equal(output, model.ar_generate(ids, **options, max_length=2048))
    result = dart_generate(
        model, prompt="w5 w9 w33", temperature=0.0, top_k=1, max_new_token_num=16, max_length=2048
    )
    assert len(result.tokens) <= 16
    assert result.text == model.tokenizer.decode(result.tokens, skip_special_tokens=True)


def test_three_decoders_share_a_target(conformance) -> None:
    """Wherever the model is moved: one text, and drafts that the target agrees with."""
    model = DartModel.from_pretrained(
        conformance / "target",
        conformance / "dart_head",
        eagle3_model_name_or_path=conformance / "eagle3_head",
    ).to("cpu")
    assert model.decoders == ("dart", "eagle3", "baseline")
    options = {"temperature": 0.7, "top_p": 0.9, "max_new_token_num": 24, "seed": 4}
    text = model.ar_generate([[5, 9, 33]], **options)
    assert torch.equal(model.eagle3_generate([[5, 9, 33]], **options), text)
    assert torch.equal(model.dart_generate([[5, 9, 33]], **options), text)
    steps = list(model.stream([5, 9, 33], "eagle3", max_new_token_num=24, tree_size=7))
    assert max(step.accept_length for step in steps) > 0
    assert {len(step.tree) for step in steps[1:-1] if step.tree} == {8}
    with pytest.raises(ConfigError, match="tree size"):
        model.new_drafter("eagle3", tree_size=-1)


def test_an_eagle3_head_alone_is_enough(conformance) -> None:
    """A user of EAGLE3 has neither a DART head nor n-grams."""
    model = DartModel.from_pretrained(
        conformance / "target", eagle3_model_name_or_path=conformance / "eagle3_head"
    )
    assert model.decoders == ("eagle3", "baseline")
    assert model.eagle3_generate([[5, 9]], max_new_token_num=5).shape[1] <= 7
    with pytest.raises(ConfigError, match="no dart head is loaded.*eagle3, baseline"):
        model.new_drafter("dart")


@pytest.mark.parametrize("ngram", [None, *NGRAM_SOURCES])
def test_ngrams_are_read_where_it_is_said(model: DartModel, ngram: str | None) -> None:
    """A choice that changes nothing would be measured as if it did."""
    drafter = model.new_drafter("dart", ngram=ngram)
    assert isinstance(drafter, DartDrafter)
    # Without an acceptance model nobody knows what the text's own n-grams are worth.
    assert (drafter.store is not None) == (ngram in (None, "static", "both"))
    assert (drafter.config.context_order > 0) == (ngram in ("context", "both"))
    prompt = [5, 9, 33, 12, 5, 9]
    texts = [
        [token for step in model.stream(prompt, decoder, ngram=ngram, max_new_token_num=40)
         for token in step.tokens]
        for decoder in ("baseline", "dart")
    ]  # fmt: skip
    assert texts[0] == texts[1]


def test_ngrams_that_cannot_be_read_are_refused(model: DartModel) -> None:
    """A misspelt source, or a store that is not there, must not be skipped in silence."""
    with pytest.raises(ConfigError, match="ngram is 'trie'; expected one of static, context"):
        model.new_drafter("dart", ngram="trie")
    bare = DartModel(model.target, model.tokenizer, model.dart_head)
    for ngram in ("static", "both"):
        with pytest.raises(ConfigError, match=f"{ngram}.*no n-gram store is loaded"):
            bare.new_drafter("dart", ngram=ngram)
    assert bare.new_drafter("dart").max_tree_size > 1


def test_a_fitted_score_needs_its_model(model: DartModel) -> None:
    """Upstream's weights under the name of the fitted score would be measured as that."""
    assert isinstance(model.new_drafter("dart", score="upstream"), DartDrafter)
    with pytest.raises(ConfigError, match="score is 'best'; expected one of upstream, fitted"):
        model.new_drafter("dart", score="best")
    with pytest.raises(ConfigError, match="no acceptance model for itself and n-grams 'static'"):
        model.new_drafter("dart", score="fitted")


def test_upstreams_score_is_upstreams_drafter() -> None:
    """What is compared with upstream must not be half ours: weights, n-grams and tree are its."""
    demo = DartModel.demo()
    fitted, upstream = (demo.new_drafter("dart", score=score) for score in ("fitted", "upstream"))
    assert isinstance(fitted, DartDrafter)
    assert isinstance(upstream, DartDrafter)
    assert fitted.acceptance is demo.acceptance["both"]
    assert upstream.acceptance is None
    assert upstream.store is not None
    assert upstream.config.context_order == 0
    assert upstream.config.min_probability == 0
    for ngram in NGRAM_SOURCES:
        drafter = demo.new_drafter("dart", ngram=ngram, score="upstream")
        assert isinstance(drafter, DartDrafter)
        assert drafter.acceptance is None
        assert (drafter.config.context_order > 0) == (ngram in ("context", "both"))


@pytest.mark.parametrize("score", SCORES)
def test_a_given_tree_size_is_kept(score: str) -> None:
    """Tau at equal tree size means nothing where one score draws smaller trees."""
    demo = DartModel.demo()
    prompt = demo.encode("Write a Python function to add two numbers.")
    for ngram in ("static", "both"):
        steps = list(
            demo.stream(prompt, tree_size=40, ngram=ngram, score=score, max_new_token_num=40)
        )
        # The last levels of a text that ends at a token limit are cut.
        sizes = {len(step.tree) for step in steps[1:-2] if step.tree is not None}
        assert sizes == {41}, (ngram, score)
        assert [t for step in steps for t in step.tokens] == [
            t for step in demo.stream(prompt, "baseline", max_new_token_num=40) for t in step.tokens
        ]


def test_the_demo_knows_what_all_ngrams_are_worth() -> None:
    """An acceptance file that fits nothing is left out without a word; drafts get worse."""
    demo = DartModel.demo()
    for ngram in NGRAM_SOURCES:
        drafter = demo.new_drafter("dart", ngram=ngram)
        assert isinstance(drafter, DartDrafter)
        assert drafter.config.min_probability > 0, ngram
    best = demo.new_drafter("dart")
    assert isinstance(best, DartDrafter)
    assert best.store is not None
    assert best.config.context_order > 0


def test_input_ids_of_another_shape_are_refused(model: DartModel) -> None:
    """Two prompts at once are not decoded as one."""
    with pytest.raises(ConfigError, match="one prompt"):
        model.dart_generate(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ConfigError, match="integers"):
        model.dart_generate(torch.zeros(1, 3))


def test_a_decoder_that_is_not_there_is_named(model: DartModel) -> None:
    """The message lists what there is."""
    assert model.decoders == ("dart", "baseline")
    with pytest.raises(ConfigError, match="no eagle3 head is loaded.*dart, baseline"):
        next(model.stream([1, 2], "eagle3"))
    with pytest.raises(ConfigError, match="expected one of dart, eagle3, baseline"):
        next(model.stream([1, 2], "medusa"))


def test_paths_that_are_wrong_are_named(conformance, tmp_path) -> None:
    """Each path is checked before the next one is read."""
    with pytest.raises(CheckpointError, match="does not exist"):
        DartModel.from_pretrained(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        DartModel.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"neither a \.ngram store nor full\.trie"):
        DartModel.from_pretrained(
            conformance / "target",
            ngram_model_name_or_path=conformance / "ngram",
            is_small_ngram=False,
        )


def test_a_corrupt_target_is_one_clear_error(conformance, tmp_path) -> None:
    """transformers raises many kinds of error; the user sees one."""
    folder = shutil.copytree(conformance / "target", tmp_path / "target")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        DartModel.from_pretrained(folder)


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_stock_models_load_from_a_folder(conformance, tmp_path, architecture) -> None:
    """Any causal LM with full attention is a target; DART needs a head, the baseline none."""
    tiny_model(architecture).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(conformance / "target" / name, tmp_path)
    model = DartModel.from_pretrained(tmp_path)
    assert model.decoders == ("baseline",)
    assert model.ar_generate([[5, 9]], max_new_token_num=5).shape[1] <= 7


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs(conformance, dtype) -> None:
    """Rounding may choose another token at a near tie, but nothing may fail."""
    model = DartModel.from_pretrained(
        conformance / "target",
        conformance / "dart_head",
        eagle3_model_name_or_path=conformance / "eagle3_head",
        torch_dtype=dtype,
    )
    for generate in (model.dart_generate, model.eagle3_generate):
        assert generate([[5, 9, 33]], max_new_token_num=16).shape[1] <= 19


def test_out_of_memory_is_one_clear_error_and_the_model_lives_on(model, monkeypatch) -> None:
    """A long prompt on a full GPU must not take the server down."""

    def run_out(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    with monkeypatch.context() as patch:
        patch.setattr(model.target, "forward_tree", run_out)
        with pytest.raises(DeviceError, match=r"ran out of memory.*20\.00 GiB.*smaller"):
            list(model.stream([5, 9, 33]))
    assert list(model.stream([5, 9, 33], max_new_token_num=4))


def test_a_device_that_is_not_there_is_named(model) -> None:
    """And the model stays where it was."""
    if torch.cuda.device_count() > 7:
        pytest.skip("this machine has that device")
    with pytest.raises(DeviceError, match="cannot be moved to cuda:7"):
        model.to("cuda:7")
    assert list(model.stream([5, 9, 33], max_new_token_num=4))
