"""All that is looked at in a model folder."""

from __future__ import annotations

from pathlib import Path

from outlive.checkpoint.verify.files import Weights, compare_with_manifest
from outlive.checkpoint.verify.finding import LEVELS, Finding
from outlive.checkpoint.verify.texts import look_at_config, look_at_dtype, look_at_head, look_at_tokenizer
from outlive.checkpoint.verify.values import look_at_values
from outlive.run.errors import InputError


def verify_folder(folder: Path) -> list[Finding]:
    """What is wrong with a Hugging Face model folder, or worth knowing: errors first. Reads every byte of it once.

    Raises InputError where it is no folder.
    """
    if not folder.is_dir():
        raise InputError("this is no folder", where=str(folder), fix="name the folder of a model")
    weights = Weights(folder)
    config, found = look_at_config(folder)
    found = [*weights.found, *found, *compare_with_manifest(folder)]
    if weights.tensors:
        found += look_at_dtype(config, weights.tensors, folder)
        found += look_at_head(config, weights.tensors, folder)
        found += look_at_values(weights.tensors, weights.places)
    found += look_at_tokenizer(config, weights.tensors, folder)
    return sorted(dict.fromkeys(found), key=lambda finding: LEVELS.index(finding.level))
