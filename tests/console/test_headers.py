"""Headers of pages, and what templates may not hold under them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.console.browsing import Browser

ROOT = Path(__file__).resolve().parents[2] / "console"
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/console/sign-in", "/console/none", "/console/me"])
def test_page_is_framed_by_no_site_and_runs_its_own_scripts_alone(path: str) -> None:
    answer = Browser().get(path)
    policy = answer["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy and "default-src 'none'" in policy and "unsafe" not in policy
    assert (answer["X-Frame-Options"], answer["X-Content-Type-Options"]) == ("DENY", "nosniff")
    assert "no-store" in answer["Cache-Control"] and answer["Referrer-Policy"] == "same-origin"


@pytest.mark.django_db
def test_assets_are_kept_for_good_under_the_name_of_their_digest() -> None:
    text = Browser().get("/console/sign-in").content.decode()
    found = re.findall(r'"(/static/console/[^"]+)"', text)
    assert len(found) >= 6
    for url in found:
        answer = Browser().get(url, **{"Accept-Encoding": "gzip"})
        assert answer.status_code == 200 and "immutable" in answer["Cache-Control"], url
        assert answer["Content-Encoding"] == "gzip"
        assert Browser().get(re.sub(r"\.[0-9a-f]{12}\.", ".000000000000.", url)).status_code == 404


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_template_has_nothing_inline_and_nothing_from_elsewhere(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", text), "a script goes into console/static"
    assert not re.search(r"\sstyle=|\son[a-z]+=|<style", text), "a style goes into console.css, a handler into a script"
    assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), "no third-party requests"
    assert "|safe" not in text and "autoescape" not in text


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_form_that_changes_something_carries_its_token(template: Path) -> None:
    for form in re.findall(r"<form\b[^>]*method=\"post\".*?</form>", template.read_text(), re.DOTALL):
        assert "{% csrf_token %}" in form, form[:120]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_control_has_a_label(template: Path) -> None:
    text = template.read_text()
    labelled = set(re.findall(r'<label[^>]*for="([^"]+)"', text))
    inside = re.sub(r"<label\b.*?</label>", "", text, flags=re.DOTALL)
    for control in re.findall(r"<(?:input|select|textarea)\b[^>]*>", inside):
        named = re.search(r'\bid="([^"]+)"', control)
        has_label = "aria-label=" in control or (named and named[1] in labelled)
        assert has_label or 'type="hidden"' in control, f"{template.name}: {control}"


def test_vendored_scripts_have_their_licences() -> None:
    for name in ("htmx", "uplot"):
        assert (ROOT / "static/console/vendor" / f"{name}.LICENSE").read_text().strip()
