"""Which 64-bit hashes were there before, in memory that does not grow past a limit."""

from __future__ import annotations

from array import array

MAX_SLOTS = 1 << 22  # 32 MiB of hashes; a source of more rows forgets some of the earlier ones
_PROBES = 64


class Seen:
    """A set of hashes in an open table. It never says that a hash was there when it was not, but once MAX_SLOTS are in
    use it forgets old ones: `forgets` says whether it did."""

    def __init__(self) -> None:
        self._table = array("Q", bytes(8 << 12))
        self._used = 0
        self.forgets = False

    def add(self, value: int) -> bool:
        """Whether the value was there already; it is from now on."""
        value = value or 1  # 0 marks a free slot
        if self._used * 2 > len(self._table) and len(self._table) < MAX_SLOTS:
            self._grow()
        table, mask = self._table, len(self._table) - 1
        slot = value & mask
        for step in range(_PROBES):
            found = table[(slot + step) & mask]
            if found == value:
                return True
            if not found:
                table[(slot + step) & mask] = value
                self._used += 1
                return False
        table[slot] = value
        self.forgets = True
        return False

    def _grow(self) -> None:
        old = [value for value in self._table if value]
        self._table = array("Q", bytes(8 * min(MAX_SLOTS, 4 * len(self._table))))
        self._used = 0
        for value in old:
            self.add(value)
