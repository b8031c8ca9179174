"""Values of a config.json or of a GGUF header that nobody has checked before, each named in its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outlive.run.errors import InputError


class Fields:
    """`values` by key; `fix`: what to do where one can't be used; `left()`: the keys that nobody has asked for."""

    def __init__(self, values: Mapping[str, Any], where: str, fix: str, prefix: str = "") -> None:
        self.values, self.where, self.fix, self.prefix = dict(values), where, fix, prefix
        self._taken: set[str] = set()

    def left(self) -> list[str]:
        """Keys that have a value which was not looked at."""
        return [key for key in self.values if key not in self._taken and self.values[key] is not None]

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default where there is none."""
        self._taken.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number below 2^31."""
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 31:
            raise self.refused(key, value, f"should be a number from {least} on")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A number above 0 as the shortest decimal of the same float32: 9.99999974e-06 is 1e-05."""
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e38:
            raise self.refused(key, value, "should be a number above 0")
        return float(str(np.float32(value)))

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.refused(key, value, "should be true or false")
        return value

    def must(self, key: str, default: Any, allowed: tuple[Any, ...], why: str) -> Any:
        """The value, which has to be one of those that the other side can tell."""
        value = self.get(key, default)
        if isinstance(value, np.ndarray) or value not in allowed:
            raise self.refused(key, value, why)
        return value

    def refused(self, key: str, value: Any, why: str) -> InputError:
        """The error that names the key, its value, and why it can't be."""
        said = "missing" if value is None else str(value)[:60]
        return InputError(f"{self.prefix}{key} is {said}, and {why}", where=self.where, fix=self.fix)
