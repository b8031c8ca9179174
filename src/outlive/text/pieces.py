"""What one token of a vocabulary says, for display: byte-level and byte-fallback spellings turned back into text."""

from __future__ import annotations

import re

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """Character → byte of byte-level BPE (GPT-2): printable Latin-1 stands for itself, the rest begins at U+0100."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    alphabet = {chr(byte): byte for byte in printable}
    alphabet |= {chr(0x100 + place): byte for place, byte in enumerate(b for b in range(256) if b not in printable)}
    return alphabet


_BYTES = _byte_alphabet()


def piece_text(token: str, byte_level: bool) -> str:
    """The text of one vocabulary entry. Bytes that are no whole UTF-8 character are written as \\xNN."""
    if byte_level:
        if all(char in _BYTES for char in token):
            return bytes(_BYTES[char] for char in token).decode("utf-8", errors="backslashreplace")
        return token
    if match := _BYTE_FALLBACK.fullmatch(token):
        return bytes([int(match[1], 16)]).decode("utf-8", errors="backslashreplace")
    return token.replace("▁", " ")
