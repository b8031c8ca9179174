"""The files of a folder: are all there, do they belong together, and are they those that were written?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from outlive.checkpoint.formats.huggingface import INDEX, SINGLE, Index, read_index
from outlive.checkpoint.formats.safetensors import Header, read_header
from outlive.checkpoint.manifest import NAME, read_manifest
from outlive.checkpoint.tensors.stored import File, Stored
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.verify.finding import Finding, some
from outlive.run.errors import InputError, OutliveError
from outlive.run.files import hash_file

AGAIN = "copy it again from where it is whole"
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


class Weights:
    """The safetensors files of a folder, as far as they can be read. `found`: what is wrong with them.

    `tensors`: what a reader that goes by the index gets, or by the files where there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[Finding] = []
        self.headers: dict[str, Header] = {}
        self.files = sorted(path.name for path in folder.glob("*.safetensors"))
        for name in self.files:
            self._read(name)
        self.index = self._index()
        self.tensors: dict[str, Tensor] = {}
        self.places: dict[str, str] = {}
        self.found += self._wholeness()
        self._take()

    def _add(self, level: str, kind: str, what: str, where: str, fix: str) -> None:
        self.found.append(Finding(level, kind, what, where, fix))  # type: ignore[arg-type]

    def _read(self, name: str) -> None:
        file = File(self.folder / name)
        try:
            self.headers[name] = read_header(file)
        except OutliveError as error:
            self._add("error", "damaged_file", error.what, str(self.folder / name), error.fix or AGAIN)
        finally:
            file.close()

    def _index(self) -> Index | None:
        try:
            return read_index(self.folder)
        except OutliveError as error:
            self._add("error", "damaged_index", error.what, str(self.folder / INDEX), error.fix or AGAIN)
            return None

    def _take(self) -> None:
        wanted = self.index.weight_map if self.index is not None and not self._is_stale() else None
        for name, header in self.headers.items():
            file = File(self.folder / name)
            for tensor, entry in header.entries.items():
                if wanted is None or wanted.get(tensor) == name:
                    offset = header.data_start + entry.begin
                    self.tensors[tensor] = Stored.in_file(entry.dtype, entry.shape, file, offset)
                    self.places[tensor] = name

    def _is_stale(self) -> bool:
        """Whether the index is of an older save: none of its files is there, and another file is."""
        return (
            self.index is not None and SINGLE in self.files and not set(self.index.weight_map.values()) & {*self.files}
        )

    def _wholeness(self) -> Iterator[Finding]:
        if not self.files:
            yield Finding(
                "error", "no_weights", "there is no .safetensors file", str(self.folder), "name a model's folder"
            )
            return
        if self.index is None:
            yield from self._without_index()
            return
        where = str(self.folder / INDEX)
        missing = sorted(set(self.index.weight_map.values()) - set(self.files))
        if self._is_stale():
            what = f"the index is of an older save: none of the files that it names is there ({some(missing)})"
            yield Finding("error", "stale_index", what, where, f"delete {INDEX}: {SINGLE} needs none")
            return
        if missing:
            number = sum(place in missing for place in self.index.weight_map.values())
            what = f"files that the index names are not there: {some(missing)}, with {number} tensors"
            yield Finding("error", "missing_file", what, where, AGAIN)
        if extra := sorted(set(self.files) - set(self.index.weight_map.values())):
            what = f"files that the index does not name: {some(extra)}"
            fix = "delete them, if they are left of an older save: some readers load every .safetensors file"
            yield Finding("warning", "extra_file", what, str(self.folder), fix)
        yield from self._by_index(self.index)

    def _by_index(self, index: Index) -> Iterator[Finding]:
        where = str(self.folder / INDEX)
        for name, header in self.headers.items():
            named = {tensor for tensor, place in index.weight_map.items() if place == name}
            if absent := named - header.entries.keys():
                what = f"the index names tensors that {name} does not hold: {some(absent)}"
                yield Finding("error", "missing_tensor", what, where, AGAIN)
            if named and (unnamed := header.entries.keys() - named):
                what = f"{name} holds tensors that the index does not name there: {some(unnamed)}"
                fix = "write the folder again: readers that go by the index never see them, and draw them at random"
                yield Finding("error", "not_in_index", what, where, fix)
        total = sum(entry.end - entry.begin for header in self.headers.values() for entry in header.entries.values())
        said = index.metadata.get("total_size")
        if said is not None and said != total and not self.found:
            what = f"the index says total_size {said}, and the tensors take {total:,} bytes"
            yield Finding("note", "total_size", what, where, "harmless: no reader goes by it")

    def _without_index(self) -> Iterator[Finding]:
        shards = [found for name in self.files if (found := _SHARD.fullmatch(name))]
        by_set: dict[tuple[str, str], set[int]] = defaultdict(set)
        for found in shards:
            by_set[found[1], found[3]].add(int(found[2]))
        for (stem, total), there in by_set.items():
            absent = sorted(set(range(1, int(total) + 1)) - there)
            if absent:
                names = [f"{stem}-{number:05d}-of-{total}.safetensors" for number in absent[:1000]]
                yield Finding("error", "missing_file", f"shards are not there: {some(names)}", str(self.folder), AGAIN)
        if shards:
            what = f"there are shards and no {INDEX}"
            yield Finding("warning", "no_index", what, str(self.folder), "write the folder again from its origin")
        elif SINGLE not in self.files:
            what = f"the weights are called {some(self.files)}, and readers look for {SINGLE}"
            yield Finding("warning", "odd_name", what, str(self.folder), f"rename the file to {SINGLE}")
        seen: dict[str, str] = {}
        for name, header in self.headers.items():
            if double := seen.keys() & header.entries.keys():
                what = f"{name} and {seen[min(double)]} both hold {some(double)}"
                yield Finding(
                    "error", "held_twice", what, str(self.folder), "delete the file that is left of another save"
                )
            seen |= dict.fromkeys(header.entries, name)


def compare_with_manifest(folder: Path) -> Iterator[Finding]:
    """Every file's size and hash, where a manifest.json (of the folder, or of the checkpoint it is a part of) has
    them; a note where there is none."""
    places = ((folder, ""), (folder.parent, f"{folder.name}/"))
    root, prefix = next(((root, prefix) for root, prefix in places if (root / NAME).is_file()), (None, ""))
    if root is None:
        what = "there is no manifest.json with hashes: a byte that flipped since it was written can't be seen"
        yield Finding("note", "no_manifest", what, str(folder), "folders that outlive writes have one")
        return
    try:
        files: Mapping[str, Mapping[str, object]] = read_manifest(root)["files"]
    except InputError as error:
        yield Finding("error", "damaged_manifest", error.what, str(root / NAME), error.fix or AGAIN)
        return
    for name, about in files.items():
        if not name.startswith(prefix):
            continue
        path = root / name
        try:
            if path.stat().st_size != about["size"]:
                what = f"it has {path.stat().st_size:,} bytes, and was written with {about['size']:,}"
                yield Finding("error", "other_size", what, str(path), AGAIN)
            elif hash_file(path) != about["xxh3_128"]:
                yield Finding("error", "other_hash", "its bytes are not those that were written", str(path), AGAIN)
        except OSError as error:
            yield Finding("error", "missing_file", f"it can't be read: {error.strerror}", str(path), AGAIN)
    if unknown := {path.name for path in folder.iterdir() if f"{prefix}{path.name}" not in files and path.is_file()}:
        unknown -= {NAME}
        if unknown:
            what = f"files that were not written with the others: {some(unknown)}"
            yield Finding("warning", "extra_file", what, str(folder), "delete them, unless you put them there")
