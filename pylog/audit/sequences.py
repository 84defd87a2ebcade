"""Sets of sequence numbers that mostly follow each other, in little memory.

ranges => [[first, last], ...]    in order, both ends inside, never touching
"""

import bisect
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]


class Sequences:
    """A set of whole numbers, kept as ranges."""

    def __init__(self, ranges: Iterable[Iterable[int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add_range(first, last)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Sequences":
        """Return the set of *numbers*, which may come in any order and more than once."""
        found = cls()
        firsts, lasts = found._firsts, found._lasts
        last = -2
        for number in sorted(numbers):
            if number > last + 1:
                firsts.append(number)
                lasts.append(number)
            else:
                lasts[-1] = number
            last = number
        return found

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def __contains__(self, number: int) -> bool:
        place = bisect.bisect_right(self._firsts, number) - 1
        return place >= 0 and self._lasts[place] >= number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequences) and list(self.ranges()) == list(other.ranges())

    def __hash__(self) -> int:
        raise TypeError("sequences change")

    @property
    def last(self) -> int:
        """The highest number; -1 if there is none."""
        return self._lasts[-1] if self._lasts else -1

    @property
    def pieces(self) -> int:
        """How many ranges there are."""
        return len(self._firsts)

    def ranges(self) -> Iterator[Range]:
        """Yield the ranges in order."""
        return zip(self._firsts, self._lasts, strict=True)

    def between(self, first: int, end: int) -> "Sequences":
        """Return the numbers from *first* on and below *end*."""
        found = Sequences()
        for low, high in self.ranges():
            if low < end and high >= first:
                found._append(max(low, first), min(high, end - 1))
        return found

    def add(self, number: int) -> bool:
        """Add one number; return whether it was new."""
        lasts = self._lasts
        if lasts and number == lasts[-1] + 1:  # nearly always
            lasts[-1] = number
            return True
        if number in self:
            return False
        self.add_range(number, number)
        return True

    def add_range(self, first: int, last: int) -> None:
        """Add all numbers from *first* to *last*."""
        if first > last:
            raise ValueError(f"range {first} to {last} ends before it begins")
        low = bisect.bisect_left(self._lasts, first - 1)
        high = bisect.bisect_right(self._firsts, last + 1)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = [first], [last]

    def update(self, other: "Sequences") -> int:
        """Add another set; return how many of its numbers were there already."""
        both = self.joined(other)
        copies = len(self) + len(other) - len(both)
        self._firsts, self._lasts = both._firsts, both._lasts
        return copies

    def joined(self, other: "Sequences") -> "Sequences":
        """Return the numbers that are in either."""
        found = Sequences()
        firsts, lasts = found._firsts, found._lasts
        end = -2
        # Two lists in order, one behind the other: sorting them takes one pass.
        for first, last in sorted([*self.ranges(), *other.ranges()]):
            if first > end + 1:
                firsts.append(first)
                lasts.append(last)
                end = last
            elif last > end:
                lasts[-1] = end = last
        return found

    def without(self, other: "Sequences") -> "Sequences":
        """Return the numbers that are not in *other*."""
        found = Sequences()
        for first, last in self.ranges():
            place = bisect.bisect_left(other._lasts, first)
            while first <= last and place < len(other._firsts) and other._firsts[place] <= last:
                if other._firsts[place] > first:
                    found._append(first, other._firsts[place] - 1)
                first = other._lasts[place] + 1
                place += 1
            if first <= last:
                found._append(first, last)
        return found

    def _append(self, first: int, last: int) -> None:
        self._firsts.append(first)
        self._lasts.append(last)
