"""Decoding on ZeroGPU: in a forked process that has the GPU for as long as one call lasts.

The process with the page never has a GPU. A function that `spaces.GPU` decorates runs in a process
forked from it; arguments and everything it yields cross a pipe as pickles. So a race is run over
there, and its records come back in batches for the race that the page looks at. Nothing here is
needed anywhere else, and the package `spaces` is imported on ZeroGPU only.

source: the behaviour of spaces 0.51.3 (zero/wrappers.py) and the Hub's page on ZeroGPU.
"""

from __future__ import annotations

import argparse
import contextvars
import copy
import importlib
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gradio as gr

from app.race import Batches, Race, Record
from dart.errors import DeviceError

if TYPE_CHECKING:
    from app.engine import Decode, Loaded, Report, Task

BATCH_SECONDS = 0.05  # a stop is seen over there at the next batch, so they come without news too
JOIN_SECONDS = 5.0
MIN_GPU_SECONDS, MAX_GPU_SECONDS = 10, 90


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


def on_gpu(decode: Decode, gpu: Callable[..., Any]) -> Decode:
    """The same decoding, done over there.

    To be made once, before the page is launched, and called on the thread of the event that asks:
    the visitor's quota goes by that thread's context. The batches may be taken on any one thread;
    the first one comes when there is a GPU, which can take a minute, and nothing before it can be
    stopped. No GPU, no quota left and the like are a DeviceError with ZeroGPU's own words.

    decode  called in the forked process; the records must pickle
    gpu     `spaces.GPU`
    """

    def work(task: Task) -> Generator[list[Record], None, None]:
        # With a lock of its own: the engine's was held when this process was forked.
        yield from batches_of(Race(task.decoders, decode(task), threading.Lock()))

    def seconds(task: Task) -> int:
        return gpu_seconds(task.settings.max_tokens, len(task.decoders))

    remote = gpu(work, duration=seconds)

    def call(task: Task) -> Batches:
        return _taken(remote(task), contextvars.copy_context())

    return call


def batches_of(race: Race, seconds: float = BATCH_SECONDS) -> Generator[list[Record], None, None]:
    """Its new records at most every so many seconds, until it is over; closing stops it."""
    sent = 0
    try:
        while True:
            # Asked before the records are read: what is written in between is read.
            is_over = race.state == "finished"
            new = race.records[sent:]
            sent += len(new)
            yield new
            if is_over:
                return
            race.wait_end(seconds)
    finally:
        race.stop.set()
        race.join(JOIN_SECONDS)


def _taken(remote: Generator[list[Record], None, None], context: contextvars.Context) -> Batches:
    """What comes through the pipe, each piece asked for in the context of the event."""
    with closing(remote):
        while True:
            try:
                batch = context.run(next, remote, None)
            except gr.Error as problem:  # its text is for the visitor
                raise DeviceError(f"ZeroGPU: {problem.message}") from problem
            if batch is None:
                return
            yield batch


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
