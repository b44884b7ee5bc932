"""The endpoints for programs: `generate` answers one prompt, `race` runs several decoders on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradio.events import api

from app import race_runs
from app.engine import Engine
from app.events import ON_THE_ENGINE, toasts
from app.settings import AUTOMATIC, Settings, check_prompt
from dart.errors import DartError


def add_endpoints(engine: Engine, max_new_tokens: int) -> None:
    """Make both part of the page that is being built."""
    api(
        toasts(_generate(engine, max_new_tokens)),
        api_name="generate",
        api_description="Answer one prompt; text and figures of the whole run.",
        **ON_THE_ENGINE,
    )
    api(
        toasts(_race(engine, max_new_tokens)),
        api_name="race",
        api_description="Run several decoders on one prompt; a trace of every step of each.",
        **ON_THE_ENGINE,
    )


def _generate(engine: Engine, max_new_tokens: int) -> Callable[..., dict[str, Any]]:
    def generate(
        prompt: str,
        decoder: str = "dart",
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        tree_size: int = 0,
        max_tokens: int = max_new_tokens,
        ngram: str = AUTOMATIC,
        score: str = AUTOMATIC,
    ) -> dict[str, Any]:
        text = check_prompt(prompt)
        settings = Settings.from_form(
            decoder, temperature, top_p, top_k, seed, tree_size, max_tokens, ngram, score
        )
        message = {"role": "user", "content": text}
        ids, _ = engine.prompt_ids([message], settings.max_tokens)
        job = engine.start(ids, settings)
        try:
            job.join()
        finally:
            job.stop.set()
        error = job.snapshot().error
        if error:
            raise DartError(error)
        return {**job.result(), "decoder": settings.decoder, "prompt_tokens": len(ids)}

    return generate


def _race(engine: Engine, max_new_tokens: int) -> Callable[..., dict[str, Any]]:
    def race(
        prompt: str,
        decoders: list[str] | None = None,
        mode: str = "race",
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        tree_size: int = 0,
        max_tokens: int = max_new_tokens,
        ngram: str = AUTOMATIC,
        score: str = AUTOMATIC,
    ) -> dict[str, Any]:
        settings = Settings.from_form(
            "", temperature, top_p, top_k, seed, tree_size, max_tokens, ngram, score
        )
        chosen = list(engine.loaded.model.decoders) if decoders is None else decoders
        request = race_runs.Request.checked(prompt, chosen, mode, settings)
        trace = race_runs.start(engine, request)
        try:
            trace.race.join()
        finally:
            trace.race.stop.set()
        race_runs.raise_if_all_failed(trace)
        return trace.file()

    return race
