"""What a run of the decoding loop was worth: the one place where tau and tokens/s are defined.

The command line, the benchmark and the app all feed it with Steps. Knows nothing about models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dart.decode import Step

STAGES = ("draft", "search", "verify")  # of a step; "prefill" is apart

_LOOP_TOKENS = 24  # a text loops if it repeats itself with one period over so many tokens ...
_LOOP_REPEATS = 4  # ... and so many times at least
_LONGEST_PERIOD = 24


class RunStatistics:
    """Adds up Steps of one text, or of several after one another.

    A Step without a tree is a prefill: it brings the first token of a text. All rates are of
    decoding alone, that is of what came after the prefill.

    tokens          every token, the prefill's included
    accept_lengths  accepted draft tokens of every target forward after a prefill, without the
                    bonus token
    seconds         by stage, as the loop measured them; time of the consumer is not in it
    """

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.tokens: list[int] = []
        self.accept_lengths: list[int] = []
        self.seconds: dict[str, float] = {}
        self.finish_reason: str | None = None
        self.decode_tokens = 0  # tokens that came after a prefill
        self.drafted_nodes = 0  # of all trees, roots not counted
        self._reached: list[int] = []  # by depth - 1: forwards whose tree reached that depth
        self._accepted: list[int] = []  # by depth - 1: forwards that accepted so many
        for step in steps:
            self.add(step)

    def add(self, step: Step) -> None:
        """Take one more Step."""
        self.tokens.extend(step.tokens)
        for stage, seconds in step.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.finish_reason = step.finish_reason
        if step.tree is None:
            return
        self.accept_lengths.append(step.accept_length)
        self.decode_tokens += len(step.tokens)
        self.drafted_nodes += len(step.tree.tokens) - 1
        _count_up_to(self._reached, int(step.tree.depths.max()))
        _count_up_to(self._accepted, step.accept_length)

    def merge(self, other: RunStatistics) -> None:
        """Take all that another run counted."""
        self.tokens.extend(other.tokens)
        self.accept_lengths.extend(other.accept_lengths)
        for stage, seconds in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.finish_reason = other.finish_reason
        self.decode_tokens += other.decode_tokens
        self.drafted_nodes += other.drafted_nodes
        _add_counts(self._reached, other._reached)
        _add_counts(self._accepted, other._accepted)

    @property
    def forwards(self) -> int:
        """Target forwards after the prefill."""
        return len(self.accept_lengths)

    @property
    def tau(self) -> float | None:
        """Mean tokens per target forward after the prefill, bonus token included; None before one.

        It counts what was emitted: a text that ends with an EOS inside an accepted path has no
        bonus token in its last step.
        """
        return self.decode_tokens / self.forwards if self.forwards else None

    @property
    def mean_tree_size(self) -> float | None:
        """Drafted nodes of a tree, root not counted, in the mean; None before there are trees."""
        return self.drafted_nodes / self.forwards if self.forwards else None

    @property
    def decode_seconds(self) -> float:
        """Seconds of everything but the prefill."""
        return sum(seconds for stage, seconds in self.seconds.items() if stage != "prefill")

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the prefill's over the seconds they took; None before there are any."""
        seconds = self.decode_seconds
        return self.decode_tokens / seconds if self.decode_tokens and seconds > 0 else None

    @property
    def histogram(self) -> list[int]:
        """Target forwards by accept length: entry k counts those that accepted k draft tokens."""
        counts = [0] * (max(self.accept_lengths, default=-1) + 1)
        for length in self.accept_lengths:
            counts[length] += 1
        return counts

    @property
    def acceptance_by_depth(self) -> list[float]:
        """Entry d - 1: share that accepted d or more, of the forwards whose tree was so deep."""
        accepted = [*self._accepted, *[0] * (len(self._reached) - len(self._accepted))]
        return [part / whole for part, whole in zip(accepted, self._reached, strict=False)]

    def seconds_by_stage(self) -> dict[str, float]:
        """Seconds of prefill and decode, and of what decode consists of: draft, search, verify."""
        prefill = self.seconds.get("prefill", 0.0)
        stages = {stage: self.seconds.get(stage, 0.0) for stage in STAGES}
        return {"prefill": prefill, "decode": self.decode_seconds, **stages, **self.seconds}

    def as_dict(self) -> dict[str, Any]:
        """The figures that `generate --json` prints, without the text."""
        return {
            "tokens": self.tokens,
            "accept_lengths": self.accept_lengths,
            "tau": self.tau,
            "seconds": self.seconds_by_stage(),
            "tokens_per_second": self.tokens_per_second,
            "finish_reason": self.finish_reason,
        }


def is_loop(tokens: Sequence[int]) -> bool:
    """Whether some stretch of a text repeats itself over and over.

    Such texts are easily guessed and make a drafter look better than it is.
    """
    for period in range(1, _LONGEST_PERIOD + 1):
        run, needed = 0, max(_LOOP_TOKENS, _LOOP_REPEATS * period) - period
        for index in range(period, len(tokens)):
            run = run + 1 if tokens[index] == tokens[index - period] else 0
            if run >= needed:
                return True
    return False


def _count_up_to(counts: list[int], depth: int) -> None:
    """Add one to each of the first `depth` entries."""
    counts.extend([0] * (depth - len(counts)))
    for index in range(depth):
        counts[index] += 1


def _add_counts(counts: list[int], more: list[int]) -> None:
    counts.extend([0] * (len(more) - len(counts)))
    for index, count in enumerate(more):
        counts[index] += count
