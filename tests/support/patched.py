"""Functions of Python's own library, changed for one module and not for all threads."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def change_for(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, library: str, **changes: Any
) -> None:
    """Have ``module``, which imports ``library``, see the changed functions of it.

    To change them in the library itself changes them for threads that other tests left, too.
    """
    seen = vars(getattr(module, library)) | changes
    monkeypatch.setattr(module, library, SimpleNamespace(**seen))
