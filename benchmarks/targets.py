"""What was wanted of a number beside what was measured: a page says which of its targets it misses, and by how far."""

from __future__ import annotations


def judged(value: float, wanted: str) -> str:
    """The target in words, with how far the value is from it where it is missed; other words are left as they are.

    >>> judged(1.08, "at most 1.05"), judged(1.02, "at most 1.05"), judged(80, "at least 100")
    ('at most 1.05: missed by 3 %', 'at most 1.05', 'at least 100: missed by 20 %')
    >>> judged(2.1, "for comparison"), judged(0.7, "")
    ('for comparison', '')
    """
    for words, sign in (("at most ", 1), ("at least ", -1)):
        if wanted.startswith(words):
            limit = float(wanted.removeprefix(words))
            excess = sign * (value - limit) / limit
            return f"{wanted}: missed by {max(1, round(100 * excess))} %" if excess > 0 else wanted
    return wanted
