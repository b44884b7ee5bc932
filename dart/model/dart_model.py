"""DartModel: target, draft heads and n-gram store together, with upstream's calling names."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dart.acceptance import FILE as ACCEPTANCE_FILE
from dart.acceptance import AcceptanceModel, load_acceptance
from dart.checkpoint import load_dart_head, load_eagle3_head
from dart.config import (
    NGRAM_SOURCES,
    SCORES,
    Eagle3TreeConfig,
    GenerationConfig,
    SamplingConfig,
    TreeConfig,
)
from dart.context_store import DEFAULT_ORDER
from dart.dart_head import DartDrafter, DartHead
from dart.decode import Step, generate
from dart.drafter import Drafter, NoDrafter
from dart.eagle3_head import Eagle3Drafter, Eagle3Head
from dart.errors import CheckpointError, ConfigError, DeviceError
from dart.hub import resolve
from dart.imported import open_published
from dart.ngram import NgramStore
from dart.packing import pack_linears, unpack_linears
from dart.target import TargetModel
from dart.text import encode_chat

DECODERS = ("dart", "eagle3", "baseline")
DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"
_HEAD_FILES = ["config.json", "*.safetensors", "pytorch_model.bin", ACCEPTANCE_FILE]
# A CPU pays for every node: a small tree, or one of nodes that are worth it where that is known.
_CPU_TREE = TreeConfig(size=20)
_CPU_TREE_BY_WORTH = TreeConfig(size=32, beam_width=16, top_k=20, min_probability=0.02)
# The best of those tried on the demo: deep, because the head guesses well there, and narrow.
_CPU_EAGLE3_TREE = Eagle3TreeConfig(size=16, depth=8, top_k=2)


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """A finished text: the new text, and its token ids without the prompt's."""

    text: str
    tokens: list[int]


class DartModel:
    """One target model shared by the decoders.

    target       the target model; tokenizer  its tokenizer
    dart_head    None where no DART checkpoint was given; store  None where no n-gram file was
    eagle3_head  None where no EAGLE3 checkpoint was given
    acceptance   scores DART's nodes, by n-gram sources; empty where the checkpoint brings none
    """

    def __init__(
        self,
        target: TargetModel,
        tokenizer: Any,
        dart_head: DartHead | None = None,
        store: NgramStore | None = None,
        eagle3_head: Eagle3Head | None = None,
        acceptance: Mapping[str, AcceptanceModel] | None = None,
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.dart_head = dart_head
        self.store = store
        self.eagle3_head = eagle3_head
        self.acceptance = acceptance or {}

    @classmethod
    def from_pretrained(
        cls,
        base_model_name_or_path: str | os.PathLike[str],
        dart_model_name_or_path: str | os.PathLike[str] | None = None,
        ngram_model_name_or_path: str | os.PathLike[str] | None = None,
        eagle3_model_name_or_path: str | os.PathLike[str] | None = None,
        *,
        torch_dtype: torch.dtype | str | None = None,
        device_map: Any = None,
        is_small_ngram: bool = True,
        hub: str = "huggingface",
        ngram_memory: str = "preloaded",
        **options: Any,
    ) -> DartModel:
        """Load from folders or hub ids; what is left out is not loaded.

        torch_dtype     of the target; None: float32 on a CPU, else the checkpoint's
        is_small_ngram  `small.trie` rather than `full.trie` where a folder holds upstream's files
        ngram_memory    "mapped", "preloaded" or "locked": see NgramStore.open
        options         passed to transformers, e.g. low_cpu_mem_usage, attn_implementation
        raises          a DartError that says what does not fit
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = resolve(base_model_name_or_path, hub=hub)
        if not (folder / "config.json").is_file():
            raise CheckpointError(
                f"{folder} has no config.json; expected a Hugging Face causal LM."
            )
        if torch_dtype is None:
            on_cpu = device_map in (None, "cpu") or not torch.cuda.is_available()
            torch_dtype = torch.float32 if on_cpu else "auto"
        options.setdefault("attn_implementation", "sdpa")
        options["trust_remote_code"] = False
        options.pop("low_cpu_mem_usage", None)  # what transformers does anyway
        try:
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch_dtype, device_map=device_map, **options
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except torch.OutOfMemoryError as error:
            raise DeviceError(_out_of_memory(error)) from error
        except Exception as error:
            raise CheckpointError(
                f"the target in {folder} cannot be loaded: {str(error).strip()}"
            ) from error
        target = TargetModel(model.eval())
        target.check_tree_attention()
        self = cls(target, tokenizer)
        if dart_model_name_or_path is not None:
            head = resolve(dart_model_name_or_path, hub=hub, patterns=_HEAD_FILES)
            self.dart_head = load_dart_head(head, target)
            self.acceptance = load_acceptance(head)
        if ngram_model_name_or_path is not None:
            self.store = open_published(
                ngram_model_name_or_path, is_small=is_small_ngram, hub=hub, residence=ngram_memory
            )
        if eagle3_model_name_or_path is not None:
            head = resolve(eagle3_model_name_or_path, hub=hub, patterns=_HEAD_FILES)
            self.eagle3_head = load_eagle3_head(head, target)
        for module in self._modules():
            pack_linears(module)
        return self

    @classmethod
    def demo(cls, **options: Any) -> DartModel:
        """The embedded demo model of assets/demo."""
        eagle3 = DEMO / "eagle3"
        return cls.from_pretrained(
            DEMO / "target",
            DEMO / "dart",
            DEMO / "ngram",
            eagle3 if eagle3.is_dir() else None,
            **options,
        )

    @property
    def device(self) -> torch.device:
        """Where token ids go in."""
        return self.target.device

    @property
    def decoders(self) -> tuple[str, ...]:
        """The decoders that what is loaded can run."""
        heads = {"dart": self.dart_head, "eagle3": self.eagle3_head}
        return tuple(name for name in DECODERS if name == "baseline" or heads[name] is not None)

    def _modules(self) -> list[nn.Module]:
        heads = (self.dart_head, self.eagle3_head)
        return [self.target.model, *(head for head in heads if head is not None)]

    def to(self, device: torch.device | str) -> DartModel:
        """Move target and heads; nothing happens to a model spread over devices by device_map."""
        if len(set(getattr(self.target.model, "hf_device_map", {}).values())) > 1:
            return self
        try:
            for module in self._modules():
                unpack_linears(module)
                module.to(device)
                pack_linears(module)
        except torch.OutOfMemoryError as error:
            raise DeviceError(_out_of_memory(error)) from error
        except (RuntimeError, AssertionError) as error:
            raise DeviceError(
                f"the model cannot be moved to {device}: {str(error).splitlines()[0]}"
            ) from error
        return self

    def eval(self) -> DartModel:
        """Itself; decoding is all it does."""
        return self

    def encode(self, text: str | Sequence[dict[str, str]]) -> list[int]:
        """Ids of a chat; a string is the user's one message, or plain text without a template."""
        if isinstance(text, str):
            if getattr(self.tokenizer, "chat_template", None) is None:
                return self.tokenizer(text)["input_ids"]
            text = [{"role": "user", "content": text}]
        return encode_chat(self.tokenizer, text)

    def new_drafter(
        self,
        decoder: str,
        tree_size: int | None = None,
        ngram: str | None = None,
        score: str | None = None,
    ) -> Drafter:
        """A drafter with a state of its own.

        tree_size  drafted nodes a step, neither more nor fewer where there are as many candidates;
                   None chooses by device, and leaves out nodes known not to be worth their time
        ngram      where DART reads n-grams, one of NGRAM_SOURCES; None: wherever the score knows
                   what they are worth, else from the store alone
        score      what DART's nodes are chosen by, one of SCORES; None: fitted where the head
                   brings an acceptance model for these n-grams, else upstream
        raises     ConfigError for an unknown decoder, one whose head is not loaded, n-grams of a
                   store that is not loaded, or a fitted score without its model
        """
        if decoder not in DECODERS:
            raise ConfigError(f"decoder is {decoder!r}; expected one of {', '.join(DECODERS)}.")
        if decoder == "baseline":
            return NoDrafter()
        on_cpu = self.device.type == "cpu"
        if decoder == "dart" and self.dart_head is not None:
            ngram = self._ngram_sources(ngram, score)
            acceptance = self._score(score, ngram)
            if tree_size is not None:
                tree = TreeConfig(size=tree_size)
            elif on_cpu:
                tree = _CPU_TREE if acceptance is None else _CPU_TREE_BY_WORTH
            else:
                tree = TreeConfig()
            if ngram in ("context", "both"):
                order = DEFAULT_ORDER if acceptance is None else acceptance.context_order
                tree = replace(tree, context_order=order)
            store = self.store if ngram in ("static", "both") else None
            return DartDrafter(self.dart_head, self.target, store, tree, acceptance)
        if decoder == "eagle3" and self.eagle3_head is not None:
            if tree_size is not None:
                grown = Eagle3TreeConfig(size=tree_size)
            else:
                grown = _CPU_EAGLE3_TREE if on_cpu else Eagle3TreeConfig()
            return Eagle3Drafter(self.eagle3_head, self.target, grown)
        raise ConfigError(
            f"no {decoder} head is loaded; give --{decoder}-model-name-or-path, or choose one "
            f"of {', '.join(self.decoders)}."
        )

    def _ngram_sources(self, ngram: str | None, score: str | None) -> str:
        """What is asked for, checked; what is best where nothing is."""
        if ngram is None:
            sources = ("both", "static") if self.store is not None else ("context",)
            known = [
                name
                for name in sources
                if score != "upstream" and self._fitting_acceptance(name) is not None
            ]
            return known[0] if known else "none" if self.store is None else "static"
        if ngram not in NGRAM_SOURCES:
            raise ConfigError(f"ngram is {ngram!r}; expected one of {', '.join(NGRAM_SOURCES)}.")
        if ngram in ("static", "both") and self.store is None:
            raise ConfigError(
                f"ngram is {ngram!r}, but no n-gram store is loaded; give "
                "--ngram-model-name-or-path, or choose context or none."
            )
        return ngram

    def _score(self, score: str | None, ngram: str) -> AcceptanceModel | None:
        """The acceptance model to score with; None for upstream's weights."""
        if score is not None and score not in SCORES:
            raise ConfigError(f"score is {score!r}; expected one of {', '.join(SCORES)}.")
        acceptance = None if score == "upstream" else self._fitting_acceptance(ngram)
        if score == "fitted" and acceptance is None:
            raise ConfigError(
                f"score is 'fitted', but the DART head brings no acceptance model for itself and "
                f"n-grams {ngram!r}; fit one (python -m dart train calibrate), or choose upstream."
            )
        return acceptance

    def _fitting_acceptance(self, ngram: str) -> AcceptanceModel | None:
        """The acceptance model for these sources, if made for such a head and such a store."""
        head, acceptance = self.dart_head, self.acceptance.get(ngram)
        if head is None or acceptance is None:
            return None
        order = 1 if ngram in ("context", "none") or self.store is None else self.store.order
        return acceptance if acceptance.fits(head.config.draft_length + 1, order) else None

    def stream(
        self,
        input_ids: Any,
        decoder: str = "dart",
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        max_new_token_num: int = 512,
        max_length: int | None = None,
        tree_size: int | None = None,
        ngram: str | None = None,
        score: str | None = None,
    ) -> Generator[Step, None, None]:
        """Decode, yielding one Step a target forward; the first one is the prefill's.

        input_ids  LongTensor [1, T] or [T], or a list of ids
        tree_size, ngram, score  as in `new_drafter`
        raises     a DartError before the first step where a parameter or the prompt does not fit
        """
        prompt_ids = _as_ids(input_ids)
        sampling = SamplingConfig(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
        config = GenerationConfig(
            max_new_tokens=max_new_token_num,
            max_length=max_length,
            eos_token_ids=self.target.eos_token_ids,
            sampling=sampling,
        )
        drafter = self.new_drafter(decoder, tree_size, ngram, score)
        try:
            yield from generate(self.target, drafter, prompt_ids, config)
        except torch.OutOfMemoryError as error:
            raise DeviceError(_out_of_memory(error)) from error

    def dart_generate(self, input_ids: Any, **options: Any) -> torch.Tensor:
        """Decode with DART; options as in `stream`. LongTensor [1, T], prompt included."""
        return self._generate(input_ids, "dart", options)

    def eagle3_generate(self, input_ids: Any, **options: Any) -> torch.Tensor:
        """Decode with EAGLE3; options as in `stream`. LongTensor [1, T], prompt included."""
        return self._generate(input_ids, "eagle3", options)

    def ar_generate(self, input_ids: Any, **options: Any) -> torch.Tensor:
        """Decode plainly; options as in `stream`. LongTensor [1, T], prompt included."""
        return self._generate(input_ids, "baseline", options)

    def _generate(self, input_ids: Any, decoder: str, options: dict[str, Any]) -> torch.Tensor:
        tokens = _as_ids(input_ids)
        for step in self.stream(tokens, decoder, **options):
            tokens = [*tokens, *step.tokens]
        return torch.tensor([tokens], device=self.device)


def dart_generate(model: DartModel, prompt: str, **options: Any) -> GeneratedText:
    """Answer one prompt with DART.

    prompt   the user's message; the tokenizer's chat template is put around it where there is one
    options  as in `DartModel.stream`
    """
    tokens: list[int] = []
    for step in model.stream(model.encode(prompt), "dart", **options):
        tokens.extend(step.tokens)
    return GeneratedText(model.tokenizer.decode(tokens, skip_special_tokens=True), tokens)


def _as_ids(input_ids: Any) -> list[int]:
    ids = torch.as_tensor(input_ids)
    if ids.dim() == 2 and ids.shape[0] == 1:
        ids = ids[0]
    if ids.dim() != 1 or ids.is_floating_point():
        raise ConfigError(
            f"input_ids is {ids.dtype} {list(ids.shape)}; expected integers [1, T] (one prompt)."
        )
    return ids.tolist()


def _out_of_memory(error: BaseException) -> str:
    return (
        f"the device ran out of memory ({str(error).splitlines()[0]}). Use a smaller model, a "
        "shorter text, a smaller tree, or device_map='auto'."
    )
