"""Promise: what a path, a pattern or a URL stands for is read whole, in the order that people mean, and told apart."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from outlive.data import compressed
from outlive.data import sources as module
from outlive.data.sources import is_rows, resolve, resolve_path
from outlive.run.config import Source
from outlive.run.errors import InputError, WorkError
from outlive.run.files import hash_bytes

ROW = '{"text": "row %s"}\n'


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def write(path: str | Path, text: str = ROW % 0) -> Path:
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def names(path: str, said: list[str] | None = None) -> list[str]:
    notes: list[str] = [] if said is None else said
    return [str(file) for file in resolve_path(path, notes.append).files]


def test_a_folder_is_all_its_files_of_rows_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("part-10.jsonl", "part-2.jsonl", "part-1.jsonl", "sub/a.json", "sub/b.csv"):
        write(
            f"d/{name}", "text\nx\n" if name.endswith("csv") else '[{"text": "x"}]' if name.endswith("n") else ROW % 1
        )
    for name in ("README.md", ".hidden.jsonl", ".git/x.jsonl", "dataset_infos.json", "sub/notes.txt", "_tmp/y.jsonl"):
        write(f"d/{name}")
    write("d/empty.jsonl", "")
    said: list[str] = []
    assert names("d", said) == [
        "d/part-1.jsonl", "d/part-2.jsonl", "d/part-10.jsonl", "d/sub/a.json", "d/sub/b.csv",
    ]  # fmt: skip
    assert [note.split(":")[0] for note in said] == ["d", "1 empty files are left out"]
    assert "README.md" in said[0]


def test_a_pattern(tmp_path: Path) -> None:
    for name in ("b/x-2.jsonl", "b/x-10.jsonl", "c/x-3.jsonl", "c/y.txt"):
        write(name)
    assert names("b/*.jsonl") == ["b/x-2.jsonl", "b/x-10.jsonl"]
    assert names("**/*.jsonl") == ["b/x-2.jsonl", "b/x-10.jsonl", "c/x-3.jsonl"]
    write("odd[1].jsonl")
    assert names("odd[1].jsonl") == ["odd[1].jsonl"]  # a file's own name comes first
    with pytest.raises(InputError, match="no file fits"):
        names("z/*.jsonl")


def test_the_identity_is_of_names_and_bytes(tmp_path: Path) -> None:
    def identity() -> str:
        return resolve_path("d", lambda note: None).identity

    write("d/a.jsonl", ROW % 1)
    write("d/b.jsonl", ROW % 2)
    first = identity()
    assert identity() == first
    write("d/b.jsonl", ROW % 3)
    second = identity()
    os.rename("d/a.jsonl", "d/c.jsonl")
    assert len({first, second, identity()}) == 3


def test_a_folder_without_rows_says_what_is_there(tmp_path: Path) -> None:
    write("d/a.txt")
    with pytest.raises(InputError, match=r"only: a\.txt"):
        names("d")
    (tmp_path / "e").mkdir()
    with pytest.raises(InputError, match="only: nothing"):
        names("e")


def test_links_in_circles_end(tmp_path: Path) -> None:
    write("d/a.jsonl")
    os.symlink("..", "d/up")
    assert names("d") == ["d/a.jsonl"]


PACK: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
PACK["zst"] = lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize("ending", PACK)
def test_compressed_rows_are_unpacked_once_by_their_content(tmp_path: Path, ending: str) -> None:
    content = "".join(ROW % number for number in range(1000))
    path = tmp_path / f"rows.jsonl.{ending}"
    path.write_bytes(PACK[ending](content.encode()))
    said: list[str] = []
    (file,) = resolve_path(str(path), said.append).files
    assert file.read_text() == content
    assert file.name == "rows.jsonl"
    assert len(said) == 1
    other = tmp_path / "without an ending"
    os.rename(path, other)
    (again,) = resolve_path(str(other), said.append).files
    assert again.read_text() == content


@pytest.mark.parametrize("ending", PACK)
def test_a_damaged_one_leaves_nothing(tmp_path: Path, ending: str) -> None:
    data = PACK[ending](os.urandom(50_000).hex().encode())
    path = tmp_path / f"rows.jsonl.{ending}"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="damaged"):
        names(str(path))
    assert not [file for file in (tmp_path / "home").rglob("*") if file.is_file()]


def test_a_bomb_stops_before_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * (8 << 20)))
    left = iter([1 << 30, 1 << 30, 1 << 20])
    monkeypatch.setattr(compressed, "free_space", lambda place: next(left))
    with pytest.raises(InputError, match=r"disk .* is full"):
        names(str(path))
    assert not [file for file in (tmp_path / "home").rglob("*") if file.is_file()]


@pytest.fixture
def memory() -> Any:
    files = fsspec.filesystem("memory")
    files.store.clear()
    return files


def test_a_url_is_copied_once_and_again_when_it_changes(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/set/part-2.jsonl", (ROW % 2).encode())
    memory.pipe("/set/part-10.jsonl", (ROW % 10).encode())
    memory.pipe("/set/README.md", b"# about")
    said: list[str] = []
    found = resolve_path("memory://set", said.append)
    assert ["README.md" in note for note in said] == [True]
    assert [path.read_text() for path in found.files] == [ROW % 2, ROW % 10]
    assert resolve_path("memory://set/part-*.jsonl", lambda note: None).identity == found.identity
    assert names("memory://set/part-2.jsonl")[0].endswith("part-2.jsonl")
    opened: list[str] = []
    opening = type(memory).open
    monkeypatch.setattr(
        type(memory), "open", lambda self, path, *a, **k: opened.append(path) or opening(self, path, *a, **k)
    )
    mark = {"ETag": "1"}
    info = type(memory).info
    monkeypatch.setattr(type(memory), "info", lambda self, path, **k: {**info(self, path, **k), **mark})
    names("memory://set")
    assert len(opened) == 2
    names("memory://set")
    assert len(opened) == 2
    mark["ETag"] = "2"
    names("memory://set")
    assert len(opened) == 4


def test_what_is_not_there_and_what_breaks_off(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no file of rows there"):
        names("memory://nothing")
    with pytest.raises(InputError, match="can't be read here"):
        names("nosuchkind://x/y.jsonl")
    memory.pipe("/a.jsonl", b"x" * 100)

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionError("reset by peer")

    monkeypatch.setattr(type(memory), "open", lambda self, path, *a, **k: Broken())
    with pytest.raises(InputError, match="reset by peer"):
        names("memory://a.jsonl")
    assert not [file for file in (tmp_path / "home").rglob("*") if file.is_file()]


class Store(MemoryFileSystem):  # type: ignore[misc]
    """Files as an object store keeps them: each content has an ETag, and listings are remembered."""

    cachable = False
    listed: ClassVar[dict[str, dict[str, Any]]] = {}

    def invalidate_cache(self, path: str | None = None) -> None:
        self.listed.clear()

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        if path not in self.listed:
            about = super().info(path, **options)
            mark = {"ETag": hash_bytes(self.cat_file(path))} if about["type"] == "file" else {}
            self.listed[path] = {**about, **mark}
        return self.listed[path]


@pytest.fixture
def object_store(memory: Any, monkeypatch: pytest.MonkeyPatch) -> Store:
    Store.listed.clear()
    store = Store()
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url: (store, "/" + url.partition("://")[2]))
    return store


def test_a_change_is_seen_by_the_same_process_whatever_listings_are_remembered(object_store: Store) -> None:
    object_store.pipe("/a.jsonl", (ROW % 1).encode())
    (first,) = names("s3://a.jsonl")
    object_store.pipe("/a.jsonl", (ROW % 2).encode())
    (second,) = names("s3://a.jsonl")
    assert [Path(first).read_text(), Path(second).read_text()] == [ROW % 1, ROW % 2]


def test_a_file_that_is_replaced_while_it_is_fetched_is_not_kept_as_the_old_one(
    object_store: Store, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_store.pipe("/a.jsonl", (ROW % 1).encode())

    def replaced(path: str, *given: Any, **options: Any) -> io.BytesIO:
        memory.pipe("/a.jsonl", (ROW % 2).encode())
        return io.BytesIO((ROW % 2).encode())

    monkeypatch.setattr(object_store, "open", replaced)
    with pytest.raises(InputError, match="replaced while"):
        names("s3://a.jsonl")
    assert not [file for file in (tmp_path / "home").rglob("*") if file.is_file()]


def test_a_stream_that_ends_early_without_an_error_is_one(
    object_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_store.pipe("/a.jsonl", (ROW % 1 + ROW % 2).encode())
    monkeypatch.setattr(object_store, "open", lambda path, *given, **options: io.BytesIO((ROW % 1).encode()))
    with pytest.raises(InputError, match="broke off"):
        names("s3://a.jsonl")
    assert not [file for file in (tmp_path / "home").rglob("*") if file.is_file()]


def test_files_are_asked_for_in_blocks_of_a_few_mib(object_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    object_store.pipe("/a.jsonl", (ROW % 1).encode())
    asked: list[int] = []

    def opened(path: str, mode: str, block_size: int) -> io.BytesIO:
        asked.append(block_size)
        return io.BytesIO((ROW % 1).encode())

    monkeypatch.setattr(object_store, "open", opened)
    names("s3://a.jsonl")
    assert len(asked) == 1
    assert asked[0] <= 8 << 20


def test_empty_files_and_marks_of_folders_are_left_out_elsewhere_too(
    object_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_store.pipe({"/d/a.jsonl": (ROW % 1).encode(), "/d/b.jsonl": b""})
    find = object_store.find
    monkeypatch.setattr(object_store, "find", lambda path: [*find(path), "/d/", "/d/sub/"])
    said: list[str] = []
    (file,) = names("s3://d", said)
    assert file.endswith("a.jsonl")
    assert [note.split(":")[0] for note in said] == ["1 empty files are left out"]


def test_a_web_address_of_rows_is_a_file_whatever_its_query_says(
    object_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "https://host/rows.jsonl?signature=" + "a" * 400
    content = io.BytesIO((ROW % 1).encode())
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url: (object_store, url))
    monkeypatch.setattr(object_store, "isdir", lambda path: pytest.fail("the whole file is read for links"))
    monkeypatch.setattr(object_store, "exists", lambda path: path == address)
    monkeypatch.setattr(object_store, "info", lambda path: {"size": len(ROW % 1), "type": "file"})
    monkeypatch.setattr(object_store, "open", lambda path, *given, **options: content)
    (file,) = names(address)
    assert file.endswith("/rows.jsonl")


def test_a_full_disk_is_an_error_of_the_disk(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/a.jsonl", b"x" * 100)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkError, match="No space left"):
        names("memory://a.jsonl")
    assert not [file for file in (tmp_path / "home").rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("a.jsonl", True), ("data/train-0.parquet", True), ("x.json.zst", True), ("X.CSV", True), ("a.txt", False),
        ("dataset_info.json", False), (".cache/a.jsonl", False), ("a.py", False), ("b.tar.gz", False),
    ],
)  # fmt: skip
def test_which_files_hold_rows(name: str, is_one: bool) -> None:
    assert is_rows(name) == is_one


def test_rows_of_several_files_are_told_apart_in_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from outlive.data.prepare import prepare
    from outlive.run.config import Data
    from outlive.text.tokenizer import Tokenizer
    from tests.fixtures import tiny_tokenizer

    write("d/a.jsonl", ROW % 1)
    write("d/b.jsonl", ROW % 2 + "no JSON\n")
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))
    with pytest.raises(InputError) as caught:
        prepare(Data(train=[Source(path="d")], validation=None), tokenizer, None)
    assert "b.jsonl:2" in str(caught.value)


def test_a_hub_source_goes_to_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def files(*given: Any) -> tuple[list[Path], str]:
        asked.append(given[:4])
        return [write(tmp_path / "train.jsonl")], "c" * 40

    monkeypatch.setattr(module, "hub_files", files)
    found = resolve(Source(hub="org/set", split="test", revision="main", subset="en"), lambda note: None)
    assert asked == [("org/set", "test", "main", "en")]
    assert (found.name, found.about) == (f"org/set@{'c' * 12} (test)", {"revision": "c" * 40})


def test_files_of_one_name_are_told_apart_by_the_names_they_were_given(tmp_path: Path) -> None:
    """One plain and one packed beside it, named by a relative path; and equal packed ones in two folders."""
    write("d/a.jsonl", ROW % 1)
    Path("d/a.jsonl.gz").write_bytes(gzip.compress((ROW % 2).encode()))
    for path in ("d", "d/*", str(tmp_path / "d")):
        found = resolve_path(path, lambda note: None)
        assert found.names == ["a.jsonl", "a.jsonl.gz"]
        assert [file.read_text() for file in found.files] == [ROW % 1, ROW % 2]
    for name in ("e/x", "e/y"):
        write(f"{name}/a.jsonl.gz").write_bytes(gzip.compress((ROW % 3).encode(), mtime=0))
    found = resolve_path("e", lambda note: None)
    assert found.names == ["x/a.jsonl.gz", "y/a.jsonl.gz"]
    os.rename("e/x", "e/z")  # the names are in the samples' ids
    assert resolve_path("e", lambda note: None).identity != found.identity


def test_how_a_text_is_read_is_part_of_the_identity(tmp_path: Path) -> None:
    def identity(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return resolve_path(name, lambda note: None).identity

    lines = b'{"text": "a"}\n'
    assert identity("a.jsonl", lines) == identity("a.json", lines) == hash_bytes(lines)  # as it always was
    both = b"text\tsystem,text\nhello\tfoo,bar\n"
    assert identity("a.csv", both) != identity("a.tsv", both)
    assert identity("a.csv", both) == identity("b.CSV", both)  # not the name, but what is made of it
    one = b'"text"\n"1"\n'
    assert identity("a.csv", one) != identity("a.txt", one) == hash_bytes(one)


@pytest.mark.parametrize(
    ("name", "content", "what", "fix"),
    [
        ("c.tar.gz", None, "a tar archive is in it", "tar -xf c.tar.gz"),
        ("c.tar", None, "it is a tar archive", "tar -xf c.tar"),
        ("c.zip", b"PK\x03\x04....", "it is a zip file", "unzip c.zip"),
        ("c.jsonl.lz4", b"\x04\x22\x4d\x18....", "it is an lz4 file", "lz4 -d c.jsonl.lz4"),
        ("c.7z", b"7z\xbc\xaf\x27\x1c....", "it is a 7-Zip file", "7z x c.7z"),
        ("c.txt", b"Once upon a time\nthere was a file.\n", "plain text, not rows", "one on each line"),
        ("c.txt.gz", gzip.compress(b"Once upon a time\n"), "plain text, not rows", "one on each line"),
        ("c.jsonl.gz", gzip.compress(gzip.compress(b"{}")), "a gzip file is in it", "unpack it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # compressed bytes hold the time
)
def test_what_holds_no_rows_is_named_for_what_it_is(name: str, content: bytes | None, what: str, fix: str) -> None:
    import tarfile

    if content is not None:
        Path(name).write_bytes(content)
    else:
        write("inside.jsonl")
        with tarfile.open(name, f"w:{'gz' if name.endswith('gz') else ''}") as archive:
            archive.add("inside.jsonl")
    with pytest.raises(InputError, match=what) as error:
        names(name)
    assert fix in str(error.value)
    assert "home" not in str(error.value)  # the user's file is named, not its copy


def test_hf_urls_name_the_switch_that_keeps_them_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set"):
        names("hf://datasets/org/name/a.jsonl")
