"""What to do about errors that many places find: the `fix` of each."""

from __future__ import annotations

COPY_AGAIN = "copy it again from where it is whole"
OWN_CONFIG = "give the config.json that belongs to these tensors; `outlive verify` says which of them differ"
OTHER_FORMAT = "keep the model as a Hugging Face folder, which holds all that others can't"
