"""Promise: what interrupted preparations left is removed once it is old; never what somebody may be at work on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from outlive.data import leftovers
from outlive.data.building import only_builder
from outlive.data.leftovers import KEPT_DAYS, remove_leftovers
from outlive.run.flock import lock, unlock

KEY, OTHER = "1" * 32, "2" * 32
NAMES = [f".{KEY}.unfinished", f".{KEY}.{'a' * 16}.tmp", f".{KEY}.lock"]


def aged(path: Path, days: float) -> None:
    """Set the time of a file, or of a folder and all that is in it."""
    then = time.time() - days * 86400
    for entry in [*path.rglob("*"), path]:
        os.utime(entry, (then, then))


def left(stores: Path, key: str, days: float) -> None:
    """What a killed builder leaves: an unfinished store, a folder that was on its way, and a lock that nobody holds."""
    for name in (f".{key}.unfinished", f".{key}.{'a' * 16}.tmp"):
        (stores / name / "train").mkdir(parents=True)
        (stores / name / "train" / "data-00000.arrow").write_bytes(b"x" * 1000)
        aged(stores / name, days)
    (stores / f".{key}.lock").touch()
    aged(stores / f".{key}.lock", days)


def there(stores: Path) -> list[str]:
    return sorted(entry.name for entry in stores.iterdir())


def test_what_is_old_goes_and_its_size_is_said(tmp_path: Path) -> None:
    left(tmp_path, KEY, KEPT_DAYS + 0.1)
    left(tmp_path, OTHER, KEPT_DAYS - 0.1)
    (tmp_path / KEY).mkdir()
    aged(tmp_path / KEY, 100)  # a store
    for name in (".mine.unfinished", f".{KEY}.kept"):
        (tmp_path / name).mkdir()
        aged(tmp_path / name, 100)  # no builder gives such names
    kept = sorted(set(there(tmp_path)) - set(NAMES))
    said: list[str] = []
    remove_leftovers(tmp_path, said.append)
    assert there(tmp_path) == kept
    (note,) = said
    assert "2 interrupted preparations" in note
    assert f"for {KEPT_DAYS} days" in note
    assert note.endswith(" kB")
    remove_leftovers(tmp_path, said.append)
    assert len(said) == 1


def test_one_file_that_was_written_lately_keeps_the_folder(tmp_path: Path) -> None:
    left(tmp_path, KEY, 30)
    os.utime(tmp_path / NAMES[0] / "train" / "data-00000.arrow")
    remove_leftovers(tmp_path, lambda note: None)
    assert NAMES[0] in there(tmp_path)
    assert NAMES[1] not in there(tmp_path)


def test_what_a_builder_holds_stays_however_old_it_is(tmp_path: Path) -> None:
    left(tmp_path, KEY, 30)
    before = there(tmp_path)
    descriptor = lock(tmp_path / NAMES[2], lambda content: None)
    assert descriptor is not None
    remove_leftovers(tmp_path, pytest.fail)
    assert there(tmp_path) == before
    unlock(tmp_path / NAMES[2], descriptor)
    remove_leftovers(tmp_path, lambda note: None)
    assert there(tmp_path) == []


def test_what_a_builder_went_on_with_before_the_lock_was_taken_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path, KEY, 30)
    taking = leftovers.try_lock

    def late(path: Path) -> int | None:
        aged(tmp_path / NAMES[0], 0)  # another wrote to it, and was killed
        return taking(path)

    monkeypatch.setattr(leftovers, "try_lock", late)
    remove_leftovers(tmp_path, lambda note: None)
    assert there(tmp_path) == [NAMES[0]]


def test_the_lock_is_held_while_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left(tmp_path, KEY, 30)
    removing = leftovers.shutil.rmtree
    seen: list[int | None] = []

    def watched(path: Path, ignore_errors: bool) -> None:
        seen.append(leftovers.try_lock(tmp_path / NAMES[2]))
        removing(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(leftovers.shutil, "rmtree", watched)
    remove_leftovers(tmp_path, lambda note: None)
    assert seen == [None, None]


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left(tmp_path, KEY, 30)
    before = there(tmp_path)

    def refused(path: Path) -> int | None:
        raise PermissionError(13, "Permission denied")  # another user's

    for answer in (refused, lambda path: None):
        monkeypatch.setattr(leftovers, "try_lock", answer)
        remove_leftovers(tmp_path, pytest.fail)
        assert there(tmp_path) == before


def test_a_start_sweeps_the_old_ones_of_other_keys_and_keeps_its_own_to_go_on(tmp_path: Path) -> None:
    left(tmp_path, KEY, 30)
    left(tmp_path, OTHER, 30)
    said: list[str] = []
    with only_builder([tmp_path / KEY], said.append):
        assert there(tmp_path) == [NAMES[2], NAMES[0]]
    assert len(said) == 1


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    stores, elsewhere = tmp_path / "stores", tmp_path / "elsewhere"
    left(elsewhere, KEY, 30)
    stores.mkdir()
    os.symlink(elsewhere, stores / NAMES[0])
    remove_leftovers(stores, pytest.fail)
    assert there(stores) == [NAMES[0]]
    assert there(elsewhere) == sorted(NAMES)
