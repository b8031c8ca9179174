"""The tokenizer of a model folder, on the `tokenizers` library alone: the same ids as transformers gives.

Folders written by transformers 4 and 5 are read alike. What transformers 5 does with the files was read from its
release 5.24 and is held by a test that compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from outlive.run.errors import InputError
from outlive.run.files import hash_json
from outlive.text.pieces import piece_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
Template = str | dict[str, str] | None


class Encoder(Protocol):
    """What gives the same ids as a tokenizer in less time. Both raise UnicodeEncodeError for half of a character."""

    def encode(self, text: str) -> list[int]: ...

    def encode_all(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]: ...


GET_AGAIN = "get the tokenizer's files again from where the model comes from"


class Tokenizer:
    """Text ↔ token ids. Made by `Tokenizer.load(folder)`; holds no truncation, no padding and no clean-up.

    folder: where it came from. vocab_size: ids run from 0 to vocab_size - 1, added tokens included.
    special_tokens: name → text as chat templates see them ('bos_token' …). added_tokens: text → id.
    special_ids: ids of added tokens that are marked special. chat_template: the model's own, or None.
    chat_templates: all named templates ('default', 'tool_use' …), empty when there is only one.
    end_of_turn_ids: the ids on which generation stops: the added tokens among generation_config's eos_token_id, and
    the eos token.
    """

    def __init__(self, backend: Backend, special_tokens: dict[str, str], folder: Path = Path()) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.folder = folder
        self.given_tokens: tuple[str, ...] = ()  # see add_special
        self.encoder: Encoder | None = None  # another that gives the same ids (`fast_tokenizer`)
        self.special_tokens = special_tokens
        self._index_added()
        self.chat_template: str | None = None
        self.chat_templates: dict[str, str] = {}
        self.end_of_turn_ids: list[int] = [] if self.eos_id is None else [self.eos_id]

    @classmethod
    def load(cls, folder: Path | str) -> Tokenizer:
        """The tokenizer in `folder` (tokenizer.json and the files beside it). InputError when it can't be read."""
        folder = Path(folder)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise InputError(
                "the folder holds no tokenizer.json" if folder.is_dir() else "the tokenizer's folder does not exist",
                where=str(folder),
                fix="save the tokenizer with transformers (tokenizer.save_pretrained) to get one",
            )
        config = _read_object(folder / "tokenizer_config.json")
        try:
            backend = Backend.from_file(str(file))
        except Exception as error:  # the library raises bare Exception for every malformed file
            what, fix = f"tokenizer.json can't be read: {error}", "get the file again from where the model is from"
            raise InputError(what, where=str(file), fix=fix) from error
        _refuse_dropout(backend, file)
        try:
            special = _add_tokens(backend, config, folder)
            backend.encode_special_tokens = bool(config.get("split_special_tokens", False))
            tokenizer = cls(backend, special, folder)
            tokenizer._take_templates(_templates(folder, config))
            tokenizer._take_end_of_turn(_read_object(folder / "generation_config.json").get("eos_token_id"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # JSON, but not of the form that it has
            what = f"the tokenizer's configuration is malformed: {type(error).__name__}: {error}"
            raise InputError(what, where=str(folder), fix="get the files again from where the model is from") from error
        return tokenizer

    def add_special(self, tokens: Sequence[str]) -> None:
        """Take further texts as special tokens, as a model does whose chat template is tried with this tokenizer.

        A template may be asked which of these close a turn; of the tokenizer's own, only declared ends of turn do.
        """
        self._backend.add_tokens([AddedToken(token, special=True, normalized=False) for token in tokens if token])
        self._index_added()
        self.given_tokens = tuple(dict.fromkeys((*self.given_tokens, *(token for token in tokens if token))))

    def _index_added(self) -> None:
        decoder = self._backend.get_added_tokens_decoder()
        self.added_tokens = {token.content: index for index, token in sorted(decoder.items())}
        self.special_ids = frozenset(index for index, token in decoder.items() if token.special)
        self.vocab_size = self._backend.get_vocab_size(with_added_tokens=True)

    def _take_templates(self, template: Template) -> None:
        if isinstance(template, str):
            self.chat_template = template
        elif template:
            self.chat_templates = template
            self.chat_template = template.get("default")

    def _take_end_of_turn(self, eos: Any) -> None:
        listed = [] if eos is None else eos if isinstance(eos, list) else [eos]
        if not all(isinstance(index, int) for index in listed):
            raise ValueError(f"eos_token_id of generation_config.json is {eos!r}")
        added = set(self.added_tokens.values())
        kept = [index for index in listed if index in added]
        self.end_of_turn_ids = list(dict.fromkeys(kept + self.end_of_turn_ids))

    @cached_property
    def hash(self) -> str:
        """A hash of all that changes tokens or what ends a turn; equal however the folder was written."""
        return hash_json(
            {
                "tokenizer": self._backend.to_str(),
                "splits_special": self._backend.encode_special_tokens,
                "special_tokens": self.special_tokens,
                "end_of_turn": sorted(self.end_of_turn_ids),
            }
        )

    def id_of(self, token: str | None) -> int | None:
        """The id of one token's text, or None when the vocabulary lacks it."""
        return None if token is None else self._backend.token_to_id(token)

    @property
    def backend(self) -> Backend:
        """The tokenizer of the `tokenizers` library."""
        return self._backend

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.special_tokens.get("eos_token")

    @property
    def pad_token(self) -> str | None:
        return self.special_tokens.get("pad_token")

    @property
    def bos_id(self) -> int | None:
        return self.id_of(self.bos_token)

    @property
    def eos_id(self) -> int | None:
        return self.id_of(self.eos_token)

    @property
    def pad_id(self) -> int | None:
        return self.id_of(self.pad_token)

    @property
    def end_of_turn(self) -> list[str]:
        """The texts of `end_of_turn_ids`."""
        return [token for index in self.end_of_turn_ids if (token := self._backend.id_to_token(index)) is not None]

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of what the vocabulary lacks; None where nothing is unknown, or where it has another use, too."""
        named = getattr(self._backend.model, "unk_token", None) or self.special_tokens.get("unk_token")
        unknown = self.id_of(named)
        return None if unknown in (self.bos_id, self.eos_id, self.pad_id, *self.end_of_turn_ids) else unknown

    def encode(self, text: str) -> list[int]:
        """The ids of `text`. No BOS or EOS is added; special tokens written in the text become their ids."""
        if self.encoder is not None:
            with suppress(UnicodeEncodeError):
                return self.encoder.encode(text)
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode`, for many texts, on several threads. Raises InputError for text that no UTF-8 can hold."""
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            fix = "take the text out, or write it anew"
            raise InputError(f"a text can't be tokenised: {_why_not(texts, error)}", fix=fix) from error
        return [encoding.ids for encoding in encodings]

    def encode_all(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """As `encode`, for each of many texts, as arrays: the way for whole data sets. Raises InputError."""
        if self.encoder is not None:
            with suppress(UnicodeEncodeError):  # the way below says which text it is
                return self.encoder.encode_all(texts)
        import numpy as np  # who asks for arrays has it; others need not wait for it

        return [np.array(self.encode(text), np.int32) for text in texts]

    def encode_with_ends(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of `text`, as `encode` gives them, and where in the text each token ends, in characters."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        return encoding.ids, [end for _, end in encoding.offsets]

    def text_frame(self) -> tuple[list[int], list[int]]:
        """The ids that the tokenizer itself puts before and after a plain text (BOS, EOS); often two empty lists."""
        framed = self._backend.encode("a", add_special_tokens=True)
        ids, added = framed.ids, framed.special_tokens_mask
        own = [place for place, mark in enumerate(added) if not mark]
        if not own:
            return ids, []
        return ids[: own[0]], ids[own[-1] + 1 :]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens included, without clean-up of spaces."""
        return self._backend.decode([int(index) for index in ids], skip_special_tokens=False)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each id's own text, for display; bytes that are no whole character are written as \\xNN."""
        byte_level = self._byte_level
        special = set(self.added_tokens.values())
        return [self._show(int(index), byte_level, special) for index in ids]

    def _show(self, index: int, byte_level: bool, special: set[int]) -> str:
        token = self._backend.id_to_token(index)
        if token is None:
            return f"<no token {index}>"
        return token if index in special else piece_text(token, byte_level)

    @cached_property
    def _byte_level(self) -> bool:
        parts = (self._backend.decoder, self._backend.pre_tokenizer)
        return any("ByteLevel" in str(part) for part in parts if part is not None)


def _refuse_dropout(backend: Backend, file: Path) -> None:
    """Raise InputError for BPE that leaves out merges at random (Provilkov et al., 2020): the same text has other ids
    each time, in the data and again where the model is served. It is not ours to switch off: checkpoints take the file
    along, and servers read it."""
    dropout = getattr(backend.model, "dropout", None)
    if dropout:
        raise InputError(
            f"the tokenizer drops merges at random (model.dropout is {dropout:g}): the same text has other tokens each "
            "time, so that no prompt of a server is what was trained",
            where=str(file),
            fix='set "dropout": null in it, in the section "model"',
        )


def _add_tokens(backend: Backend, config: dict[str, Any], folder: Path) -> dict[str, str]:
    """Give `backend` the tokens that only the configuration names, in transformers' order; return the named ones."""
    listed = {int(i): _token(t) for i, t in (config.get("added_tokens_decoder") or {}).items()}
    if "added_tokens_decoder" not in config:  # written before transformers 4.34: two more files say the rest
        config = config | _read_object(folder / "special_tokens_map.json")
        names = {_text(config[key]) for key in _NAMED if config.get(key)}
        for text, index in _read_object(folder / "added_tokens.json").items():
            listed[index] = AddedToken(text, normalized=text not in names, special=text in names)
    known = {token.content: token for token in (*backend.get_added_tokens_decoder().values(), *listed.values())}
    if backend.padding:
        config = {"pad_token": backend.padding["pad_token"]} | config
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    named = {key: config[key] for key in _NAMED if config.get(key)}
    named |= {key: value for key, value in config.items() if _names_token(key, value) and key not in named}
    if isinstance(extra, Mapping):
        named |= extra
        extra = []
    new = [token for _, token in sorted(listed.items(), key=lambda item: item[0])]
    present = set(known)
    for value in (*named.values(), *extra):
        if (text := _text(value)) not in present:
            new.append(_token(value))
            present.add(text)
    backend.add_tokens(new)
    return {key: _text(value) for key, value in named.items()}


def _names_token(key: str, value: Any) -> bool:
    """Whether a key of the configuration names a token of the model's own, such as image_token."""
    if key in _NAMED or not key.endswith("_token"):
        return False
    return (isinstance(value, str) and bool(value)) or (isinstance(value, Mapping) and "content" in value)


def _text(token: Any) -> str:
    text = token["content"] if isinstance(token, Mapping) else token
    if not isinstance(text, str):
        raise ValueError(f"a token is {token!r}, not text")
    return text


def _token(value: Any) -> AddedToken:
    if not isinstance(value, Mapping):
        return AddedToken(_text(value), special=True)
    flags = {key: value[key] for key in _TOKEN_FLAGS if key in value}
    return AddedToken(_text(value), **({"special": True} | flags))


def _templates(folder: Path, config: dict[str, Any]) -> Template:
    """The chat template(s): files first, then the configuration's string or list of {name, template}."""
    found = {}
    if (file := folder / "chat_template.jinja").is_file():
        found["default"] = _read_text(file)
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[file.stem] = _read_text(file)
    if found:
        return found["default"] if list(found) == ["default"] else found
    template = config.get("chat_template")
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}
    if not isinstance(template, str | dict | None):
        raise ValueError(f"chat_template is {template!r}, not text")
    return template


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the file can't be read: {error}", where=str(path), fix=GET_AGAIN) from error


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error}", where=str(path), fix=GET_AGAIN) from error
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=str(path), fix=GET_AGAIN)
    return value


def _why_not(texts: Sequence[str], error: Exception) -> str:
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            return f"text {place} is a {type(text).__name__}"
        if any("\ud800" <= char <= "\udfff" for char in text):
            return f"text {place} holds half of a surrogate pair, which is no character"
    return str(error)
