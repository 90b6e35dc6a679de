"""Someone's own code by its name, package.module:attribute."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from ldmnet.errors import InputError


def imported(name: str, what: str) -> tuple[Any, ModuleType]:
    """What a name stands for, found as Python run in this folder would find it, and its module.

    Args:
        name: package.module:attribute.
        what: it is, for an error.
    """
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
        return getattr(found, attribute), found
    except (ImportError, AttributeError) as error:
        raise InputError(f"the {what} {name} cannot be loaded: {error}.") from error
