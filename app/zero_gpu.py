"""Decoding on ZeroGPU: in a forked process that has the GPU for as long as one call lasts.

The process with the page never has a GPU. A function that `spaces.GPU` decorates runs in a process
forked from it; arguments and everything it yields cross a pipe as pickles. So a job (a race, or the
chat's race of one) is started over there, and its records come back in batches. Nothing here is
needed anywhere else, and the package `spaces` is imported on ZeroGPU only.

source: the behaviour of spaces 0.51.3 (zero/wrappers.py) and the Hub's page on ZeroGPU.
"""

from __future__ import annotations

import argparse
import contextvars
import copy
import importlib
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from dart.errors import DartError, DeviceError

if TYPE_CHECKING:
    from app.engine import Loaded, Report

P = ParamSpec("P")
R = TypeVar("R")
Batches = Generator[list[R], None, None]

BATCH_SECONDS = 0.05  # a stop is seen over there at the next batch, so they come without news too
JOIN_SECONDS = 5.0
MIN_GPU_SECONDS, MAX_GPU_SECONDS = 10, 90


class Job(Protocol):
    """What runs over there: `records` only grows, until `state` is "finished"."""

    @property
    def records(self) -> Sequence[Any]: ...

    @property
    def state(self) -> str: ...

    @property
    def stop(self) -> Any: ...

    def wait_end(self, timeout: float) -> bool: ...

    def join(self, timeout: float | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error of ours on its way through the pipe; `spaces` would keep no more than its class."""

    error: DartError


def is_zero_gpu() -> bool:
    """Whether this is a ZeroGPU Space, by the variable that `spaces` itself goes by."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def gpu_decorator() -> Callable[..., Any]:
    """`spaces.GPU`; to be called before torch is imported, which `spaces` patches."""
    return importlib.import_module("spaces").GPU


def gpu_seconds(max_tokens: int, decoders: int = 1) -> int:
    """What to ask for: it must be no more than the visitor has left of the day's quota.

    A guess on the safe side (20 tokens a second and decoder, and some to start); not measured.
    """
    wanted = MIN_GPU_SECONDS + decoders * max_tokens // 20
    return min(MAX_GPU_SECONDS, wanted)


def on_gpu(
    start: Callable[P, Job],
    gpu: Callable[..., Any],
    duration: Callable[P, int],
) -> Callable[P, Batches[Any]]:
    """What `start(...)`'s job records, decoded over there, as batches; an empty one: nothing new.

    To be made once, before the page is launched, and called on the thread of the event that asks:
    the visitor's quota goes by that thread's context. The batches may be taken on any one thread.

    start     starts a job; called in the forked process, where the GPU is. Its arguments must
              pickle, and so must the records
    gpu       `spaces.GPU`
    duration  of the same arguments: seconds of GPU to ask for
    """

    def work(*args: P.args, **kwargs: P.kwargs) -> Generator[list[Any] | _Failure, None, None]:
        try:
            yield from batches(start(*args, **kwargs))
        except DartError as error:
            yield _Failure(error)

    remote = gpu(work, duration=duration)

    def call(*args: P.args, **kwargs: P.kwargs) -> Batches[Any]:
        return _taken(remote(*args, **kwargs), contextvars.copy_context())

    return call


def batches(job: Job, seconds: float = BATCH_SECONDS) -> Batches[Any]:
    """New records at most every so many seconds, until the job has ended; closing stops it."""
    sent = 0
    try:
        while True:
            # Asked before the records are read: what is written in between is read.
            is_over = job.state == "finished"
            new = list(job.records[sent:])
            sent += len(new)
            yield new
            if is_over:
                return
            job.wait_end(seconds)
    finally:
        job.stop.set()
        job.join(JOIN_SECONDS)


def _taken(
    remote: Generator[list[Any] | _Failure, None, None], context: contextvars.Context
) -> Batches[Any]:
    """What comes through the pipe, each piece asked for in the context of the event."""
    with closing(remote):
        while True:
            try:
                got = context.run(next, remote, None)
            except Exception as problem:
                raise _explained(problem) from problem
            if got is None:
                return
            if isinstance(got, _Failure):
                raise got.error
            yield got


def _explained(problem: Exception) -> Exception:
    """No GPU, no quota left and the like are a gr.Error whose text is for the visitor."""
    import gradio as gr

    if isinstance(problem, gr.Error):
        return DeviceError(f"ZeroGPU: {problem.message}")
    return problem


def load_on_cpu(
    load: Callable[[argparse.Namespace, Report], Loaded], args: argparse.Namespace, report: Report
) -> Loaded:
    """The model, for a process without a GPU, ready for the processes forked from it.

    To be called on the main thread before the page is launched: moving a model to "cuda" is made
    believe here, on this thread only, and its weights are packed at launch. All that computes,
    the checks and the warming up, is done on the CPU before.
    """
    args = copy.copy(args)
    args.device = "cpu"
    args.dtype = args.dtype or "bfloat16"
    began = time.monotonic()
    loaded = load(args, report)
    report("Moving the weights")
    model: Any = loaded.model
    held = loaded.memory()  # while it still is on the CPU: there is no GPU here to ask
    model.to("cuda")
    report(f"Ready after {time.monotonic() - began:.0f} s")
    return replace(loaded, device="ZeroGPU", memory=lambda: held)
