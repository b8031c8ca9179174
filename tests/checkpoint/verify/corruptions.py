"""Random corruptions of checkpoints of every format: each has to be a clear error or a named finding.

    python tests/checkpoint/verify/corruptions.py [--cases 5000] [--seed 0]

No crash, no hang (a limit on each case), bounded memory (a limit on the process). Each case is looked at twice: with
its manifest, where it has to be named, and without, where a byte of the data that flipped may not be seen.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from outlive.checkpoint.verify.path import verify_path  # noqa: E402
from outlive.run.errors import OutliveError  # noqa: E402
from tests.checkpoint.verify.small import FORMATS  # noqa: E402

SECONDS = 20  # of one case
MEMORY = 600 << 20  # bytes of addresses beyond those of the process as it begins
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF)


def _changed(rng: random.Random, whole: bytes) -> bytes:
    """The bytes of a file with a few changed, cut, put twice, or with a length in them made very large."""
    bad = bytearray(whole)
    near = len(bad) if rng.random() < 0.4 or len(bad) < 8 else min(len(bad), 2000)
    place = rng.randrange(near) if near else 0
    if rng.random() < 0.3 and len(bad) > 2000:
        place = len(bad) - 1 - rng.randrange(2000)  # directories of archives are at the end
    kind = rng.randrange(7)
    if kind == 0:
        del bad[place:]
    elif kind == 1:
        bad[place : place + 8] = rng.choice([b"\xff" * 8, b"\x00" * 8, (1 << rng.randrange(63)).to_bytes(8, "little")])
    elif kind == 2:
        bad[place : place + rng.randrange(1, 5000)] = b""
    elif kind == 3:
        bad[place:place] = bad[place : place + rng.randrange(1, 300)]
    elif kind == 4:
        end = min(len(bad), place + rng.randrange(1, 5000))
        bad[place:end] = bytes(end - place)
    else:
        for _ in range(rng.choice([1, 1, 4, 64])):
            if bad:
                at = min(len(bad) - 1, max(0, place + rng.randrange(-40, 40)))
                bad[at] = rng.choice([rng.randrange(256), bad[at] ^ 1 << rng.randrange(8), rng.choice(_NUMBERS)])
    return bytes(bad)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def run(cases: int, seed: int, folder: Path) -> tuple[dict[str, Counter[str]], list[str]]:
    """Counts by format, and what went wrong."""
    rng = random.Random(seed)
    names = [name for name in FORMATS if name != "bins" or importlib.util.find_spec("torch")]
    made = {name: FORMATS[name](folder / name / "checkpoint") for name in names}
    for name, place in made.items():
        assert all(finding.level != "error" for finding in verify_path(place)), name
    signal.signal(signal.SIGALRM, _stop)
    _limit_memory()
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    wrong: list[str] = []
    for number in range(cases):
        name = names[number % len(names)]
        files = sorted(path for path in made[name].rglob("*") if path.is_file())
        weights = [path for path in files if path.suffix not in (".json", ".jinja")]
        path = rng.choice(weights if rng.random() < 0.6 else files)
        _one(rng, made[name], path, f"{name} {number} {path.name}", counts[name], wrong)
    return counts, wrong


def _one(rng: random.Random, place: Path, path: Path, label: str, count: Counter[str], wrong: list[str]) -> None:
    """One case: damage a file, look with the manifest and without, and put it back."""
    whole, manifest = path.read_bytes(), place / "manifest.json"
    bad = _changed(rng, whole)
    if bad == whole:
        return
    count["cases"] += 1
    kept = manifest.read_bytes()
    try:
        path.write_bytes(bad)
        is_named = _is_named(place, label, wrong)
        count["named"] += is_named
        if not is_named and path != manifest:
            wrong.append(f"{label}: nothing was found")
        if path != manifest:
            manifest.unlink()
            count["without"] += 1
            count["seen"] += _is_named(place, f"{label}, no manifest", wrong)
        else:
            count["of the manifest, harmless"] += not is_named
    finally:
        manifest.write_bytes(kept)
        path.write_bytes(whole)


def _is_named(place: Path, label: str, wrong: list[str]) -> bool:
    signal.alarm(SECONDS)
    try:
        return any(finding.level != "note" for finding in verify_path(place))
    except OutliveError as error:
        return bool(error.what and error.fix)
    except BaseException as error:  # anything else is what must not be
        wrong.append(f"{label}: {''.join(traceback.format_exception(error))}")
        return True  # told above
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Damage checkpoints, and look whether it is told.")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counts, wrong = run(arguments.cases, arguments.seed, Path(folder))
    print("| format | corruptions | named, or a clear error | of the same without their manifest, seen |")
    print("|---|---|---|---|")
    for name, count in counts.items():
        harmless = count["of the manifest, harmless"]
        note = f" (and {harmless} that left the manifest's meaning as it was)" if harmless else ""
        print(f"| {name} | {count['cases']} | {count['named']}{note} | {count['seen']} of {count['without']} |")
    print(f"\nCrashes, hangs (over {SECONDS} s), cases past {MEMORY >> 20} MiB, corruptions missed: {len(wrong)}.")
    print(f"{arguments.cases:,} cases, seed {arguments.seed}, in {time.perf_counter() - started:.0f} s.")
    print("\n".join(wrong[:20]), file=sys.stderr)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
