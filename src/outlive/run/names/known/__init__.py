"""Keys of other tools that are known and have no counterpart here, each with its reason."""

from outlive.run.names.known.base import Known
from outlive.run.names.known.data_and_model import DATA, MODEL
from outlive.run.names.known.training_and_files import FILES, TRAINING
from outlive.run.names.known.unneeded import NOT_NEEDED

__all__ = ["KNOWN", "Known"]

KNOWN: tuple[Known, ...] = (*NOT_NEEDED, *DATA, *MODEL, *TRAINING, *FILES)
