"""Keys of other tools that are known and have no counterpart here, each with its reason."""

from outlive.run.known.base import Known
from outlive.run.known.data_and_model import DATA, MODEL
from outlive.run.known.training_and_files import FILES, TRAINING
from outlive.run.known.unneeded import NOT_NEEDED

__all__ = ["KNOWN", "Known"]

KNOWN: tuple[Known, ...] = (*NOT_NEEDED, *DATA, *MODEL, *TRAINING, *FILES)
