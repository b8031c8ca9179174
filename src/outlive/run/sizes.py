"""Numbers of bytes and of things, for people."""

from __future__ import annotations


def size(num_bytes: float) -> str:
    """'512 bytes', '1.6 MB', '23.4 GB': decimal units, as disks and file managers count."""
    if num_bytes < 1000:
        return f"{num_bytes:.0f} bytes"
    for unit in ("kB", "MB", "GB", "TB"):
        num_bytes /= 1000
        if num_bytes < 1000 or unit == "TB":
            break
    return f"{num_bytes:.3g} {unit}" if num_bytes < 100 else f"{num_bytes:,.0f} {unit}"


def counted(number: int, name: str) -> str:
    """'1 token', '1,024 tokens'."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"
