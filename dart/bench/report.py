"""What the runs of a benchmark were worth: figures per decoder, a table, and their provenance."""

from __future__ import annotations

import os
import platform
import shlex
import statistics as st
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dart.bench.run import BASELINE, Run
from dart.stats import STAGES, RunStatistics, is_loop

SCHEMA = 1


def summarize(
    runs: Sequence[Run], names: Sequence[str], tasks: Sequence[str] | None = None
) -> dict[str, Any]:
    """Figures of a benchmark: "decoders" by name, "prompts" one by one, "looping_prompts".

    names  of the prompts; speed-ups and identity are None where no baseline ran
    tasks  of the prompts; where there are several, each decoder has figures "by_task"
    """
    prompts_of: dict[str, set[int]] = {}
    for prompt, task in enumerate(tasks or ()):
        prompts_of.setdefault(task, set()).add(prompt)
    decoders = list(dict.fromkeys(run.decoder for run in runs))
    baseline = {
        run.prompt: run.statistics.tokens for run in reversed(runs) if run.decoder == BASELINE
    }
    looping = {p for p, tokens in baseline.items() if is_loop(tokens)}
    figures = {}
    for name in decoders:
        own = [run for run in runs if run.decoder == name]
        entry = _figures(own, [run for run in runs if run.decoder == BASELINE])
        entry.update(_identity(own, baseline, names))
        without = [run for run in runs if run.prompt not in looping]
        entry["without_loops"] = _short(
            [run for run in without if run.decoder == name],
            [run for run in without if run.decoder == BASELINE],
        )
        if len(prompts_of) > 1:
            entry["by_task"] = {
                task: _short(
                    [r for r in runs if r.prompt in prompts and r.decoder == name],
                    [r for r in runs if r.prompt in prompts and r.decoder == BASELINE],
                )
                for task, prompts in sorted(prompts_of.items())
            }
        figures[name] = entry
    return {
        "decoders": figures,
        "looping_prompts": [names[prompt] for prompt in sorted(looping)],
        "prompts": [_prompt_record(runs, p, names[p], p in looping) for p in range(len(names))],
    }


def _figures(own: Sequence[Run], base: Sequence[Run]) -> dict[str, Any]:
    """All figures of one decoder over its runs, against the baseline's."""
    total = _total(own)
    repeats = sorted({run.repeat for run in own})
    by_repeat = [
        _speedup(
            _total([r for r in own if r.repeat == i]), _total([r for r in base if r.repeat == i])
        )
        for i in repeats
    ]
    by_prompt = [
        ratio
        for prompt in sorted({run.prompt for run in own})
        if (ratio := _prompt_speedup(own, base, prompt)) is not None
    ]
    return {
        **_short(own, base),
        "speedup_by_repeat": by_repeat,
        "speedup_by_prompt": spread(by_prompt),
        "accept_length_histogram": total.histogram,
        "acceptance_by_depth": total.acceptance_by_depth,
        "tokens": total.decode_tokens,
        "target_forwards": total.forwards,
        "seconds": total.seconds_by_stage(),
        "wall_seconds": sum(run.wall_seconds for run in own),
    }


def _short(own: Sequence[Run], base: Sequence[Run]) -> dict[str, Any]:
    total = _total(own)
    return {
        "prompts": len({run.prompt for run in own}),
        "tokens_per_second": total.tokens_per_second,
        "tau": total.tau,
        "mean_tree_size": total.mean_tree_size,
        "speedup": _speedup(total, _total(base)),
    }


def _total(runs: Sequence[Run]) -> RunStatistics:
    total = RunStatistics()
    for run in runs:
        total.merge(run.statistics)
    return total


def _speedup(own: RunStatistics, base: RunStatistics) -> float | None:
    """Ratio of decode seconds for as many tokens; plain seconds where the texts are equal."""
    if own.tokens_per_second is None or base.tokens_per_second is None:
        return None
    return own.tokens_per_second / base.tokens_per_second


def _prompt_speedup(own: Sequence[Run], base: Sequence[Run], prompt: int) -> float | None:
    """Of the medians over the repeats, so that one disturbed run does not count."""

    def rate(runs: Sequence[Run]) -> float | None:
        rates = [run.statistics.tokens_per_second for run in runs if run.prompt == prompt]
        known = [value for value in rates if value is not None]
        return st.median(known) if known else None

    mine, its = rate(own), rate(base)
    return None if mine is None or its is None else mine / its


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Median, quartiles and extremes; None where there are no values."""
    if not values:
        return None
    pair = [*values, *values] if len(values) == 1 else values  # quantiles wants two
    low, middle, high = st.quantiles(pair, n=4, method="inclusive")
    return {
        "median": middle,
        "lower_quartile": low,
        "upper_quartile": high,
        "min": min(values),
        "max": max(values),
    }


def _identity(
    own: Sequence[Run], baseline: dict[int, list[int]], names: Sequence[str]
) -> dict[str, Any]:
    """Whether every text, in every repeat, is the baseline's first one of that prompt."""
    if not baseline:
        return {"identical_to_baseline": None, "differing_prompts": None, "first_difference": None}
    first: dict[str, Any] | None = None
    differing = set()
    for run in sorted(own, key=lambda run: (run.prompt, run.repeat)):
        expected, got = baseline[run.prompt], run.statistics.tokens
        if expected == got:
            continue
        differing.add(run.prompt)
        if first is None:
            at = _first_difference(expected, got)
            first = {
                "prompt": names[run.prompt],
                "position": at,
                "baseline_token": expected[at] if at < len(expected) else None,
                "token": got[at] if at < len(got) else None,
            }
    return {
        "identical_to_baseline": not differing,
        "differing_prompts": len(differing),
        "first_difference": first,
    }


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _prompt_record(runs: Sequence[Run], prompt: int, name: str, looping: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"id": name, "loops": looping, "decoders": {}}
    for run in runs:
        if run.prompt != prompt:
            continue
        entry = record["decoders"].setdefault(
            run.decoder,
            {
                "tokens": len(run.statistics.tokens),
                "target_forwards": run.statistics.forwards,
                "tau": run.statistics.tau,
                "finish_reason": run.statistics.finish_reason,
                "decode_seconds": [],
            },
        )
        entry["decode_seconds"].append(run.statistics.decode_seconds)
    return record


def provenance(arguments: Sequence[str], program: str = "dart") -> dict[str, Any]:
    """Where a result comes from: commit, command, machine, versions.

    program  the module that was run with these arguments
    """
    import torch
    import transformers

    import dart

    commit, dirty = _commit()
    return {
        "commit": commit,
        "dirty": dirty,
        "command": shlex.join(["python", "-m", program, *arguments]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpu": _cpu_name(),
            "cores": os.cpu_count(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
            "gpu_driver": _gpu_driver() if torch.cuda.is_available() else None,
        },
        "threads": torch.get_num_threads(),
        "versions": {
            "dart": dart.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "cuda": torch.version.cuda,
        },
    }


def _output(*command: str, cwd: Path | None = None) -> str | None:
    """What a program printed; None where it is not there or failed."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _commit() -> tuple[str | None, bool | None]:
    """The commit this package was run from, and whether files were changed since."""
    root = Path(__file__).resolve().parents[2]
    top = _output("git", "rev-parse", "--show-toplevel", cwd=root)
    if top is None or Path(top).resolve() != root:
        return None, None  # installed somewhere inside another project's repository
    changes = _output("git", "status", "--porcelain", cwd=root)
    return _output("git", "rev-parse", "HEAD", cwd=root), changes is None or bool(changes)


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu_driver() -> str | None:
    found = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return found.splitlines()[0] if found else None


def table(summary: dict[str, Any]) -> str:
    """The figures for people: one line a decoder."""
    header = ("decoder", "tokens/s", "tau", "speedup", "by prompt: median [quartiles]",
              *STAGES, "identical")  # fmt: skip
    rows: list[tuple[str, ...]] = [header]
    for name, entry in summary["decoders"].items():
        spread, seconds = entry["speedup_by_prompt"], entry["seconds"]
        quartiles = "-"
        if spread:
            quartiles = (
                f"{spread['median']:.2f} [{spread['lower_quartile']:.2f}, "
                f"{spread['upper_quartile']:.2f}]"
            )
        shares = [seconds[stage] / (seconds["decode"] or 1) for stage in STAGES]
        rows.append(
            (
                name,
                _number(entry["tokens_per_second"], ".1f"),
                _number(entry["tau"], ".2f"),
                _number(entry["speedup"], ".2f"),
                quartiles,
                *(f"{share:.0%}" for share in shares),
                _verdict(entry),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    looping = summary["looping_prompts"]
    if looping:
        taus = ", ".join(
            f"{name} {_number(entry['without_loops']['tau'], '.2f')}"
            for name, entry in summary["decoders"].items()
        )
        lines.append(f"{len(looping)} texts end in loops; tau without them: {taus}")
    lines += _task_lines(summary["decoders"])
    return "\n".join(line.rstrip() for line in lines)


def _task_lines(decoders: dict[str, Any]) -> list[str]:
    """Tau and speed-up by task, one line each; none where there is one task."""
    tasks = next(iter(decoders.values())).get("by_task", {})
    return [
        f"{task or 'no task'} ({first['prompts']} prompts): "
        + ", ".join(
            f"{name} {_number(entry['by_task'][task]['speedup'], '.2f')}x at tau "
            f"{_number(entry['by_task'][task]['tau'], '.2f')}"
            for name, entry in decoders.items()
            if name != BASELINE
        )
        for task, first in tasks.items()
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _verdict(entry: dict[str, Any]) -> str:
    if entry["identical_to_baseline"] is None:
        return "-"
    differing = entry["differing_prompts"]
    return "yes" if not differing else f"{differing} of {entry['prompts']} differ"
