"""Values of a config.json that nobody has checked before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.run.errors import InputError

_MOST = 1 << 40
_DEEPEST = 10_000  # layers
_WIDEST = 1 << 16  # experts, heads


def shown(value: object) -> str:
    """A value as an error shows it: short, whatever it is."""
    if isinstance(value, str):
        return repr(value[:80])
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 64):
        return str(value)
    return "a number that is too large" if isinstance(value, int) else f"a {type(value).__name__}"


class Settings:
    """`config` (its text_config, where it has one) over a family's `defaults`; InputError for what can't be right."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        inner = config.get("text_config")
        self.outer = config
        self.values: dict[str, Any] = {**defaults, **config}
        self._lists: dict[str, Any] = {}
        if isinstance(inner, dict):
            self.values.update(inner)
            if "tie_word_embeddings" in config:
                self.values["tie_word_embeddings"] = config["tie_word_embeddings"]

    def has(self, key: str) -> bool:
        """Whether there is a value, other than null."""
        return self.values.get(key) is not None

    def number(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number."""
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise InputError(f"config.json has no {key}", fix="copy the model's own config.json into its folder")
        if type(value) is not int or not least <= value <= _MOST:
            raise InputError(
                f"{key} is {shown(value)} in config.json, where a number from {least} on is expected", fix=OWN_CONFIG
            )
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """A number of things that are handled one by one: experts, heads."""
        number = self.number(key, default)
        if number > _WIDEST:
            raise InputError(f"{key} is {number} in config.json: more than {_WIDEST} are not supported", fix=OWN_CONFIG)
        return number

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(key)
        value = default if value is None else value
        if type(value) is not bool:
            raise InputError(f"{key} is {shown(value)} in config.json, where true or false is expected", fix=OWN_CONFIG)
        return value

    def layers(self, key: str = "num_hidden_layers") -> int:
        """How many layers there are."""
        number = self.number(key, least=0)
        if number > _DEEPEST:
            raise InputError(
                f"{key} is {number} in config.json: more than {_DEEPEST} layers are not supported", fix=OWN_CONFIG
            )
        return number

    def each(self, key: str, length: int) -> list[str]:
        """A list of one word for each layer."""
        value = self.values.get(key)
        if key not in self._lists:
            words = isinstance(value, list) and all(isinstance(one, str) for one in value)
            if not words or len(self.values[key]) != length:
                raise InputError(
                    f"{key} in config.json is not a list of {length} words, one for each layer", fix=OWN_CONFIG
                )
            self._lists[key] = value
        found: list[str] = self._lists[key]
        return found

    def numbers(self, key: str) -> frozenset[int]:
        """The numbers of a list; none where it is missing."""
        if key not in self._lists:
            value = self.values.get(key)
            value = [] if value is None else value
            if not isinstance(value, list) or not all(type(one) is int for one in value):
                raise InputError(f"{key} in config.json is not a list of numbers", fix=OWN_CONFIG)
            self._lists[key] = frozenset(value)
        found: frozenset[int] = self._lists[key]
        return found

    def part(self, key: str, defaults: Mapping[str, Any]) -> Settings:
        """A config within the config; its defaults where there is none."""
        value = self.outer.get(key)
        return Settings(value if isinstance(value, dict) else {}, defaults)
