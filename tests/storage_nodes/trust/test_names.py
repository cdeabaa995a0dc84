"""Names of processes in their certificates."""

from __future__ import annotations

import pytest

from storage_nodes.trust.names import InnerName, InnerRole, NameRefused, name_of, parse_name


@pytest.mark.parametrize(
    "name",
    [
        InnerName("pk-1", InnerRole.NODE, "12"),
        InnerName("a/b c", InnerRole.FRONT_END, "x"),
        InnerName("pk", InnerRole.OPERATOR, "le/ft"),
    ],
)
def test_name_is_read_as_it_was_written(name: InnerName) -> None:
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "https://pk/node/1",
        "penstock://pk/node",
        "penstock://pk/node/1/2",
        "penstock:///node/1",
        "penstock://pk/node/",
        "penstock://pk/king/1",
    ],
)
def test_name_of_another_form_is_refused(uri: str) -> None:
    with pytest.raises(NameRefused):
        parse_name(uri)


@pytest.mark.parametrize(
    "names",
    [
        (),
        (("DNS", "penstock://pk/node/1"),),
        (("URI", "https://example.com"),),
        (("URI", "penstock://pk/node/1"), ("URI", "penstock://pk/node/2")),
    ],
)
def test_certificate_without_one_name_or_with_two_is_refused(names: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(NameRefused):
        name_of({"subjectAltName": names})
    with pytest.raises(NameRefused):
        name_of(None)


def test_certificate_may_have_other_names_beside_it() -> None:
    names = (("DNS", "node-1"), ("URI", "spiffe://x/y"), ("URI", "penstock://pk/node/1"))
    assert name_of({"subjectAltName": names}) == ("pk", InnerRole.NODE, "1")
