"""Patterns in which `*` stands for any characters, matched without backtracking: they come with requests."""

from __future__ import annotations

ANY = "*"


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text fits the pattern; every character but `*` stands for itself.

    The pieces between the stars are looked for from left to right, each behind the one before. The first place where
    a piece stands leaves the most room for the others, so no earlier choice is ever taken back.
    """
    first, *rest = pattern.split(ANY)
    if not rest:
        return text == pattern
    *middle, last = rest
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    place, end = len(first), len(text) - len(last)
    for piece in filter(None, middle):
        found = text.find(piece, place, end)
        if found < 0:
            return False
        place = found + len(piece)
    return True
