"""What all tests share: a running installation for those that ask for one, and how hypothesis draws.

The suite draws the same examples every time, so that what fails failed before, too. To look for new ones:

    ./penstock test --hypothesis-profile=explore --hypothesis-seed=N tests/storage_nodes
"""

from __future__ import annotations

from hypothesis import settings

from tests.support.installation import installation

__all__ = ["installation"]

settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("suite")
