"""What can go wrong, in kinds that a caller can tell apart."""

from __future__ import annotations

from pathlib import Path


class LDMNetError(Exception):
    """Base of every error this package raises on purpose.

    Attributes:
        setting: the name of the setting that mends it, where there is one; the command line names its option.
    """

    def __init__(self, *words: object, setting: str = "") -> None:
        super().__init__(*words)
        self.setting = setting


class InputError(LDMNetError, ValueError):
    """An argument has the wrong shape, type, range or content."""


class StateError(LDMNetError, RuntimeError):
    """A call came in the wrong order, or a saved state does not fit."""


class DataError(LDMNetError, RuntimeError):
    """A data file is missing, incomplete or not what it should be."""


class DivergenceError(LDMNetError, ArithmeticError):
    """Training left the finite numbers.

    Attributes:
        why: what happened, and what to lower.
        checkpoint: the last good one, where there is one.
    """

    def __init__(self, why: str, checkpoint: Path | None = None) -> None:
        super().__init__(why, checkpoint)
        self.why, self.checkpoint = why, checkpoint

    def __str__(self) -> str:
        return self.why if self.checkpoint is None else f"{self.why} The last good checkpoint is {self.checkpoint}."


class MissingExtraError(LDMNetError, ImportError):
    """An optional dependency is needed and not installed."""


class NumericalWarning(UserWarning):
    """The linear solve ended early: the result is usable, but read the remedy."""


class BadEndWarning(UserWarning):
    """A run ended badly: training loss above chance, constant features, or one class predicted for all."""


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """The error that names a missing optional package and the line that installs it."""
    return MissingExtraError(f"{package} is not installed. Install it with: pip install 'ldmnet[{extra}]'")
