"""What all sections of the run file share: strict types, no unknown keys, and names for what is not built yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Section(BaseModel):
    """A section of the run file: frozen, without unknown keys, and without conversions between types."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    # Keys whose default another key decides: `init` shows them as comments.
    decided_elsewhere: ClassVar[frozenset[str]] = frozenset()

    def settle(self, **values: Any) -> None:
        """Fill in defaults that depend on other keys. Only for validators: a finished section never changes."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


class Mistake(ValueError):
    """A value that no type rules out. `key` is the path below the model that raises; `fix` says which key to set.

    `cause` is another key of the same model, whose line is named when `key` itself stands nowhere.
    """

    def __init__(
        self,
        what: str,
        *,
        key: tuple[str | int, ...] = (),
        fix: str | None = None,
        cause: tuple[str | int, ...] = (),
    ) -> None:
        super().__init__(what)
        self.what, self.key, self.fix, self.cause = what, key, fix, cause


def _whole(value: Any) -> Any:
    # 1e6 and 3.0 are whole numbers to whoever writes them, though YAML reads floats.
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[Whole, Field(ge=1, le=10**15)]  # more than there is of anything, less than what overflows
Share = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True)
class NotBuilt:
    """Annotation of a key whose part does not exist in this version: only the default passes."""

    default: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"const": self.default}

    def _check(self, value: Any) -> Any:
        if value != self.default or isinstance(value, bool) != isinstance(self.default, bool):
            raise Mistake(
                "this part is not built in this version", fix=f"leave the key out: its default is {_yaml(self.default)}"
            )
        return value


def later(*names: str) -> BeforeValidator:
    """A validator that tells names which a coming version knows from names that nobody knows."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in names:
            raise Mistake(f"{value} is not built in this version")
        return value

    return BeforeValidator(check)


def _yaml(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
