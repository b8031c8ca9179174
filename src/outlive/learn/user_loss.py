"""A loss of the user's own, `module:function`: imported and called, and what it returns checked."""

from __future__ import annotations

import importlib
import inspect
import math
import traceback
import typing
from collections.abc import Callable, Mapping
from typing import Any

import torch

from outlive.data.batch import Batch
from outlive.learn.loss_rule import Denominator, Term
from outlive.run.errors import InputError, nearest

Terms = Callable[[Batch, torch.Tensor, Mapping[str, torch.Tensor]], list[Term]]
_DENOMINATORS = typing.get_args(Denominator)
_FORM = "return a list of outlive.learn.loss_rule.Term(name, sum, denominator, coefficient)"


def load_terms(loss: str) -> Terms:
    """The function `module:function` of (batch, logprobs, columns), checked at every call. Raises InputError."""
    return checked_terms(_imported(loss), _where(loss))


def checked_terms(function: Callable[..., Any], where: str) -> Terms:
    """`function` of (batch, logprobs, columns), with what it returns checked at every call; `where` is for errors.

    Raises InputError where it does not take these three, and at a call that fails or returns no list of Term.
    """
    try:
        inspect.signature(function).bind(None, None, None)
    except (TypeError, ValueError):
        name = getattr(function, "__name__", str(function))
        raise InputError(f"{name} is to be a function of (batch, logprobs, columns)", where=where, fix=_FORM) from None

    def terms(batch: Batch, logprobs: torch.Tensor, columns: Mapping[str, torch.Tensor]) -> list[Term]:
        try:
            found = function(batch, logprobs, columns)
        except (torch.OutOfMemoryError, MemoryError):
            raise  # not the function's fault
        except Exception as error:
            said = f"your loss raised {_shown(error)}"
            raise InputError(said, where=f"{where}{_line(error)}", fix="mend that line") from error
        if mistake := _mistake(found, logprobs):
            raise InputError(f"your loss {mistake}", where=where, fix=_FORM)
        return list(found)

    return terms


def _imported(loss: str) -> Any:
    module_name, _, name = loss.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        fix = "install it, or set PYTHONPATH to its folder"
        raise InputError(f"there is no module {error.name}", where=f"{_where(loss)}{_line(error)}", fix=fix) from None
    except (Exception, SystemExit) as error:  # the module is a program: it may do anything, and even end this one
        raise InputError(
            f"{module_name} can't be imported: {_shown(error)}",
            where=f"{_where(loss)}{_line(error)}",
            fix="mend that line, or see that python -c 'import …' works",
        ) from error
    if not hasattr(module, name):
        close = nearest(name, [item for item in dir(module) if callable(getattr(module, item, None))])
        fix = f"did you mean {module_name}:{close}?" if close else f"define a function {name} in it"
        raise InputError(f"{module_name} has no {name}", where=_where(loss), fix=fix, nearest=close)
    return getattr(module, name)


def _mistake(terms: Any, logprobs: torch.Tensor) -> str | None:
    """What is wrong with the terms that a loss returned, or None."""
    if not isinstance(terms, list | tuple) or not terms:
        return f"returned {type(terms).__name__ if not isinstance(terms, list | tuple) else 'no term'}"
    for term in terms:
        if not isinstance(term, Term):
            return f"returned a {type(term).__name__} among its terms"
        if term.denominator not in _DENOMINATORS:
            return f"divides {term.name} by {term.denominator!r}; known: {', '.join(_DENOMINATORS)}"
        if not isinstance(term.coefficient, int | float) or not math.isfinite(term.coefficient):
            return f"gives {term.name} the coefficient {term.coefficient!r}, which is no finite number"
        if not isinstance(term.sum, torch.Tensor) or term.sum.ndim or not term.sum.is_floating_point():
            return f"gives {term.name} a sum that is no tensor of one floating-point number: {_kind(term.sum)}"
    if logprobs.requires_grad and not any(term.sum.requires_grad for term in terms):
        return "has no gradient: none of its sums is computed from logprobs"
    return None


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)} and type {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__}"


def _where(loss: str) -> str:
    return f"method.loss: {loss}"


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _line(error: BaseException) -> str:
    """ ", file:line" of the innermost line that is neither Python's import machinery nor a library's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f", {error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_the_users(frame.filename)]
    return f", {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _is_the_users(file: str) -> bool:
    return not file.startswith("<") and file not in (__file__, importlib.__file__) and "site-packages" not in file
