"""What tests of the launcher share: they choose ports in this process, as the launcher does in one of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.ports import release_claims


@pytest.fixture(autouse=True)
def claims_end_with_the_test() -> Iterator[None]:
    """Each claim is an open socket. A worker of the suite would come to a thousand, and py4j hears nothing beyond."""
    yield
    release_claims()
