"""What the package `spaces` does on ZeroGPU to a decorated generator function, without a GPU.

The function runs in a forked process; arguments and yields cross pipes as pickles; of an exception
that is no gr.Error only the class's name comes back; a closed generator is noticed over there after
its next yield; the visitor's quota is asked first, by the request in Gradio's context.
source: spaces 0.51.3, zero/wrappers.py and zero/client.py.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Generator
from typing import Any

import gradio as gr
from gradio.context import LocalContext

_fork = multiprocessing.get_context("fork")

MOST_SECONDS = 120  # what every visitor has left
# Of each call: the request of who asked, and for how many seconds.
scheduled: list[tuple[Any, int]] = []
processes: list[Any] = []


def GPU(task: Callable[..., Generator[Any, None, None]], *, duration: Callable[..., int]) -> Any:
    """Decorate a generator function."""

    def handler(*args: Any, **kwargs: Any) -> Generator[Any, None, None]:
        seconds = duration(*args, **kwargs)
        if seconds > MOST_SECONDS:
            left = f"({seconds}s requested vs. {MOST_SECONDS}s left)"
            raise gr.Error(f"You have exceeded your quota {left}", title="ZeroGPU quota exceeded")
        scheduled.append((LocalContext.request.get(None), seconds))
        # spaces pickles them although it forks: the process may be one that lives already.
        packed = pickle.dumps((args, kwargs))
        ours, theirs = _fork.Pipe()
        stop = _fork.Event()
        process = _fork.Process(target=_work, args=(task, packed, theirs, stop), daemon=True)
        process.start()
        processes.append(process)
        theirs.close()
        try:
            while (got := pickle.loads(ours.recv_bytes()))[0] != "end":
                kind, value = got
                if kind == "error":
                    raise value
                yield value
        except GeneratorExit:
            stop.set()
            raise
        except EOFError as gone:
            raise gr.Error("GPU task aborted", title="ZeroGPU worker error") from gone
        finally:
            while process.is_alive() and ours.poll(10):
                try:
                    ours.recv_bytes()
                except EOFError:
                    break
            process.join(10)

    return handler


def _work(task: Callable[..., Any], packed: bytes, pipe: Any, stop: Any) -> None:
    args, kwargs = pickle.loads(packed)
    generator = task(*args, **kwargs)
    try:
        for value in generator:
            if stop.is_set():
                generator.close()
                break
            pipe.send_bytes(pickle.dumps(("value", value)))
        pipe.send_bytes(pickle.dumps(("end", None)))
    except gr.Error as error:
        pipe.send_bytes(pickle.dumps(("error", error)))
    except Exception as error:  # noqa: BLE001  whatever it is, it must not stay over there
        name = type(error).__name__
        pipe.send_bytes(pickle.dumps(("error", gr.Error(name, title="ZeroGPU worker error"))))
