"""torch.compile for steps, which are compiled once per task and shape."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F, **options: Any) -> F:
    """The function, compiled at its first call inside `compiling`.

    torch stores what it compiled with the code of a function, and also that a network could not be compiled. Here every
    call compiles a copy with its own code, so that one task cannot change how another is trained.
    """
    with _without_warnings():
        return cast(F, torch.compile(_with_own_code(function), dynamic=False, **options))


@contextmanager
def compiling() -> Iterator[None]:
    """The context of calls of compiled functions: without the compiler's warnings, which users cannot act on."""
    # The limits guard against endless recompilation; here code is compiled once per shape.
    limits = torch._dynamo.config.patch(recompile_limit=10**6, accumulated_recompile_limit=10**6)
    with limits, _without_warnings():
        yield


def _with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(function, MethodType):
        return MethodType(_with_own_code(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    parts = function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copied = FunctionType(function.__code__.replace(), *parts)
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


@contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
