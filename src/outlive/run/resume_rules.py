"""What each key of the run file means for a run that goes on: may it differ from what the run began with?"""

from __future__ import annotations

from typing import Literal

Kind = Literal["free", "ask", "never"]

OTHER_DATA = "other tokens, or the same in another order: parts of the data are seen twice, others never"
OTHER_ROWS = "the validation loss is of other rows"
LEARNT = "the steps to come learn something else than those that were done"
_STEPS = "the optimizer goes on with other settings than those that its state was made with"
_ORDER = "steps are cut otherwise: the saved place in the data no longer means the same"
_END = "the end moves, and a schedule that falls towards it is another from here on"
SHAPE = "the saved weights and the optimizer's state don't fit"
_NAMED = "what the name stands for is compared by its content"
_SAVING = "decides only what is saved"
_WATCHING = "decides only what is watched"
ROUNDING = "losses are equal within rounding only"

# Every key of the run file, without the numbers of list items. free: may differ; ask: refused unless accepted by name;
# never: the saved state can't go on with it.
KEYS: dict[str, tuple[Kind, str]] = {
    "schema_version": ("free", "decides only how the file is written"),
    "name": ("free", "decides only where the run lies"),
    "model": ("free", _NAMED),
    "model.init.config": ("free", _NAMED),
    "model.init.tokenizer": ("free", _NAMED),
    "data.train": ("ask", OTHER_DATA),
    "data.train.path": ("free", _NAMED),
    "data.train.hub": ("free", _NAMED),
    "data.train.subset": ("ask", OTHER_DATA),
    "data.train.split": ("ask", OTHER_DATA),
    "data.train.revision": ("free", _NAMED),
    "data.train.limit": ("ask", OTHER_DATA),
    "data.train.weight": ("ask", OTHER_DATA),
    "data.train.epochs": ("ask", OTHER_DATA),
    "data.train.format": ("ask", OTHER_DATA),
    "data.train.fields": ("ask", OTHER_DATA),
    "data.train.roles": ("ask", OTHER_DATA),
    "data.mix_by": ("ask", OTHER_DATA),
    "data.pass_ends": ("ask", OTHER_DATA),
    "data.used_up": ("ask", OTHER_DATA),
    "data.order": ("ask", OTHER_DATA),
    "data.window": ("ask", OTHER_DATA),
    "data.train_while_preparing": ("free", "the steps are the same"),
    "data.validation": ("ask", f"{OTHER_ROWS}, and a share takes other rows from training"),
    "data.validation.path": ("free", _NAMED),
    "data.validation.hub": ("free", _NAMED),
    "data.validation.subset": ("ask", OTHER_ROWS),
    "data.validation.split": ("ask", OTHER_ROWS),
    "data.validation.revision": ("free", _NAMED),
    "data.validation.limit": ("ask", OTHER_ROWS),
    "data.validation.weight": ("free", "validation takes each row once"),
    "data.validation.epochs": ("free", "validation takes each row once"),
    "data.validation.format": ("ask", OTHER_ROWS),
    "data.validation.fields": ("ask", OTHER_ROWS),
    "data.validation.roles": ("ask", OTHER_ROWS),
    "data.validation_overlap": ("free", "decides only what is refused"),
    "data.sequence_length": ("ask", _ORDER),
    "data.loss_on": ("ask", LEARNT),
    "data.turn_end": ("ask", LEARNT),
    "data.overlong": ("ask", OTHER_DATA),
    "data.bad_rows": ("free", "decides only what is refused; rows that are left out are compared by content"),
    "data.packing": ("ask", _ORDER),
    "data.processes": ("free", "decides only who prepares the rows"),
    "data.tokenize_with": ("free", "the ids are the same"),
    "data.chat_template": ("free", _NAMED),
    "data.system": ("ask", LEARNT),
    "data.date": ("ask", "a template that tells the date gives other tokens"),
    "method.name": ("never", "another method is another run"),
    "method.loss": ("ask", LEARNT),
    "method.columns": ("ask", LEARNT),
    "method.router_aux_coef": ("ask", LEARNT),
    "method.router_aux_mode": ("ask", LEARNT),
    "adapter": ("never", SHAPE),
    "adapter.kind": ("never", SHAPE),
    "adapter.rank": ("never", SHAPE),
    "adapter.alpha": ("never", "the saved weights would be scaled by another factor"),
    "adapter.dropout": ("ask", LEARNT),
    "adapter.targets": ("never", SHAPE),
    "optimizer.name": ("never", "another optimizer can't go on with this one's state"),
    "optimizer.lr": ("ask", _STEPS),
    "optimizer.betas": ("ask", _STEPS),
    "optimizer.eps": ("ask", _STEPS),
    "optimizer.weight_decay": ("ask", _STEPS),
    "optimizer.schedule": ("ask", _STEPS),
    "optimizer.warmup": ("ask", _STEPS),
    "optimizer.min_lr_ratio": ("ask", _STEPS),
    "optimizer.schedule_steps": ("ask", _STEPS),
    "optimizer.clip": ("ask", _STEPS),
    "batch.tokens": ("ask", _ORDER),
    "batch.sequences": ("ask", _ORDER),
    "batch.micro_tokens": ("free", ROUNDING),
    "batch.micro_sequences": ("free", ROUNDING),
    "stop.epochs": ("ask", _END),
    "stop.steps": ("ask", _END),
    "stop.tokens": ("ask", _END),
    "stop.early_stopping": ("ask", "the run ends at another point"),
    "stop.nonfinite_steps": ("free", "decides only when numbers that went wrong end the run"),
    "precision": ("ask", "losses are no longer those of the uninterrupted run"),
    "parallel": ("free", ROUNDING),
    "activation_checkpointing": ("free", "the same numbers, computed again"),
    "checkpoint.every": ("free", _SAVING),
    "checkpoint.keep": ("free", _SAVING),
    "checkpoint.best": ("free", _SAVING),
    "checkpoint.model": ("free", _SAVING),
    "export.dtype": ("free", _SAVING),
    "export.merged": ("free", _SAVING),
    "export.gguf": ("free", _SAVING),
    "export.hub": ("free", _SAVING),
    "evals": ("free", _WATCHING),
    "track": ("free", _WATCHING),
    "seed": ("ask", "another order of the data and other dropout from here on"),
    "engine": ("never", "another engine keeps another state"),
    "trust_remote_code": ("free", "decides only whether the model's own code may run"),
}
UNKNOWN: tuple[Kind, str] = ("ask", "what it changes is not known to this version")
