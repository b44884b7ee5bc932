"""From the command line's flags to a model that is ready to chat, stage by stage."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.engine import Loaded, Message, Report
from dart import native
from dart.errors import ConfigError


def load(args: argparse.Namespace, report: Report) -> Loaded:
    """Load what the flags name, the embedded demo without any, and run it once."""
    if args.compare_eagle3:
        if args.base_model_name_or_path and not args.eagle3_model_name_or_path:
            raise ConfigError(
                "--compare-eagle3 needs --eagle3-model-name-or-path, the head to load."
            )
    else:  # upstream loads the head on this flag only, and its launch scripts name it always
        args = argparse.Namespace(**{**vars(args), "eagle3_model_name_or_path": None})
    report("Preparing the search")
    # First: where it is missing it is compiled now, and the page says what it waits for.
    native.core()
    report("Importing PyTorch")
    # Here and not above: the page is up before these seconds are over.
    from dart.cli.common import encode_messages, load_model

    _leave_a_core_for_the_page()
    base = args.base_model_name_or_path
    name = "embedded demo" if base is None else _short(base)
    report(f"Loading {name}")
    model = load_model(args)

    def encode(messages: Sequence[Message]) -> list[int]:
        return encode_messages(model, messages, args.template_name)

    report("Warming up")
    for decoder in model.decoders:
        for _ in model.stream([0, 0], decoder, max_new_token_num=4):
            pass
    context = model.target.max_positions
    return Loaded(
        model=model,
        encode=encode,
        name=name,
        parameters=model.target.num_parameters,
        device=_device_name(model.device),
        dtype=str(model.target.dtype).removeprefix("torch."),
        context=min(context, args.max_length or context),
        is_demo=base is None,
        memory=lambda: _memory(model.device),
    )


def _leave_a_core_for_the_page() -> None:
    """Decode on all cores but one, where nobody has said on how many.

    Threads that share one operation wait for each other. On two cores, one of them busy with the
    page or the browser that shows it, a race of the demo was several times slower with two threads
    than with one.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() - 1))


def _short(name_or_path: str) -> str:
    """A hub id as it is, a path by its last part."""
    path = Path(name_or_path)
    return path.resolve().name if path.exists() else name_or_path


def _device_name(device: Any) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def _memory(device: Any) -> tuple[int, str]:
    """Bytes held now: of the GPU where the model is on one, else of this process."""
    import torch

    if device.type == "cuda":
        return torch.cuda.memory_reserved(device), "GPU memory reserved by this process"
    statm = Path("/proc/self/statm")
    if statm.exists():
        import resource

        pages = int(statm.read_text().split()[1])
        return pages * resource.getpagesize(), "resident memory of this process"
    return 0, ""
