"""What all tests share: a running installation for those that ask for one."""

from __future__ import annotations

from tests.support.installation import installation

__all__ = ["installation"]
