"""How many visits a pass over the data may hold: weights that ask for more are refused, before memory is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlive.data.mixing import Stretch
from outlive.run.errors import InputError
from outlive.run.machine import available_memory
from outlive.run.sizes import counted

if TYPE_CHECKING:
    from outlive.data.plan import Mixture

MAX_VISITS = 1 << 31
VISIT_BYTES = 256  # of memory, while a plan is made (measured: 190; 260 where samples are cut in two)


def refuse_too_many(mixture: Mixture, stretches: Sequence[Stretch]) -> None:
    """Raise InputError for weights that repeat sources until a pass holds more visits than a plan can."""
    total = sum(stretch.number for stretch in stretches)
    if total <= sum(size.units for size in mixture.sizes):  # nothing is repeated: weights are not to blame
        return
    fitting = available_memory() // VISIT_BYTES
    most = min(MAX_VISITS, fitting) if fitting else MAX_VISITS
    if total <= most:
        return
    names = [str(store.manifest.get("source", store.folder)) for store in mixture.stores]
    about = list(zip(names, mixture.weights, mixture.sizes, stretches, strict=True))
    lines = [
        f"  {name}: weight {weight:g}, {counted(size.units, 'sample')}, {counted(stretch.number, 'visit')}"
        for name, weight, size, stretch in about
    ]
    why = "the memory that is free holds a plan of" if most < MAX_VISITS else "a plan holds"
    what = f"the weights of the sources ask for {total:,} visits of samples in a pass, and {why} at most {most:,}"
    raise InputError("\n".join([what, *lines]), where="data.train", fix=_fix(mixture, about))


def _fix(mixture: Mixture, about: Sequence[tuple[str, float, object, Stretch]]) -> str:
    if mixture.beyond_weights.get("by") is None:
        name = max(about, key=lambda one: one[3].number)[0]
        return f"lower the weight of {name}: 2.0 visits each of its samples twice in a pass"
    rarest = min((one for one in about if one[3].number), key=lambda one: one[1])
    fix = f"raise the weight of {rarest[0]}: the others are repeated until all of it was seen"
    return f"{fix}; or set data.pass_ends: first" if mixture.beyond_weights["pass_ends"] == "all" else fix
