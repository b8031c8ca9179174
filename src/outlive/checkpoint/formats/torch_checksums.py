"""Archives of torch.save keep a CRC-32 of each storage, which torch itself never looks at: whether the bytes are those
that were written.

A writer may leave the checksums out (torch.serialization.set_crc32_options); then nothing is found.
"""

from __future__ import annotations

from pathlib import Path

from outlive.checkpoint.formats.inside import regular_file
from outlive.checkpoint.formats.zip_members import ZipMembers
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.stored import File


def damaged_members(path: Path) -> list[str]:
    """The members of a file of torch.save whose bytes have changed. Reads all of it; InputError where it is none."""
    archive = ZipMembers(File(regular_file(Path(path))))
    return [name for name in archive.members if not archive.is_intact(name)]


def damaged_tensors(model: Model) -> list[str]:
    """The names of a model that `open_dcp` opened, tensors and items, of which bytes have changed. Reads all of it."""
    damaged = []
    for name, places in model.metadata["places"].items():
        archives = [ZipMembers(place.file, place.offset, place.length) for place in places]
        if not all(archive.is_intact(member) for archive in archives for member in archive.members):
            damaged.append(name)
    return damaged
