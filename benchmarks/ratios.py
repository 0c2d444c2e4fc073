"""Times in interleaved rounds: whatever else the machine does falls on all actions alike, so that ratios compare."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def interleaved(
    actions: Mapping[str, Callable[[], object]],
    rounds: int,
    warm: int = 1,
    said: Callable[[int], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each action in each round, forwards and backwards in turn; `warm` rounds are not measured."""
    for _ in range(warm):
        for action in actions.values():
            action()
    times: dict[str, list[float]] = {name: [] for name in actions}
    for round_ in range(rounds):
        for name in list(actions)[:: 1 if round_ % 2 else -1]:
            start = clock()
            actions[name]()
            times[name].append(clock() - start)
        said(round_ + 1)
    return times


def ratio(times: Mapping[str, Sequence[float]], a: str, b: str) -> float:
    """The median of the ratios within each round."""
    return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))
