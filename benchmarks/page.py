"""A page of measured tables: `make prove` renews the sections of the parts that it ran; all others stay."""

from __future__ import annotations

import re
from collections.abc import Mapping

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def renewed(page: str, sections: Mapping[str, str]) -> str:
    """`page` with the text under each heading ("## title") of `sections` replaced, in its place; new ones at the end.

    Raises ValueError where the page has a heading of `sections` twice: it can't be told which one is meant.
    """
    found = list(_HEADING.finditer(page))
    titles = [heading[1].strip() for heading in found]
    if twice := [title for title in sections if titles.count(title) > 1]:
        raise ValueError(f"the page has the heading {twice[0]!r} more than once")
    head = page[: found[0].start()] if found else page
    parts = [head.strip()]
    for place, (heading, title) in enumerate(zip(found, titles, strict=True)):
        end = found[place + 1].start() if place + 1 < len(found) else len(page)
        parts.append(f"## {title}\n\n{sections[title].strip()}" if title in sections else page[heading.start() : end])
    parts += [f"## {title}\n\n{text.strip()}" for title, text in sections.items() if title not in titles]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
