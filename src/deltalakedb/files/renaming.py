"""Renames a file unless the new name is taken: a substitute for link(2) on file systems without hard links."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Any

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCL = 4


def rename_without_replacing(source: str, target: str) -> None:
    """Rename in one step; FileExistsError if the name is taken.

    OSError with ENOSYS or EINVAL if the system or file system does not support it: an ordinary rename would replace.
    """
    function = _system_call()
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
    ctypes.set_errno(0)
    if function(os.fsencode(source), os.fsencode(target)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


@cache
def _system_call() -> Any:
    """renameat2(2) on Linux, renamex_np(2) on macOS; None elsewhere, or if the C library is too old."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return lambda source, target: library.renamex_np(source, target, _RENAME_EXCL)
        rename = library.renameat2
    except (OSError, AttributeError, TypeError):
        return None
    return lambda source, target: rename(_AT_FDCWD, source, _AT_FDCWD, target, _RENAME_NOREPLACE)
