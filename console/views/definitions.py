"""Definitions of the account: the document to be kept, what a document would change, and its import."""

from __future__ import annotations

import io

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from rest_framework.exceptions import ParseError

from api.definitions.comparison import ChangeKind, compare, digest_of
from api.definitions.document import Definitions, DefinitionsProblem, read_definitions, write_definitions
from api.definitions.exporting import export_definitions
from api.definitions.importing import import_definitions
from api.iam.errors import AccessDenied
from api.parsing import StrictJSONParser
from api.people.roles import Act
from console.error_notices import ErrorNotice
from console.pages import account_page
from console.visits import AccountVisit

DOCUMENT_BYTES_MAX = 900_000
_NAME_CHARS_MAX = 80


@account_page(Act.READ_QUEUES, "GET", "POST")
def definitions(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """The document is shown as changes first; the button under them applies just these."""
    if request.method == "GET":
        return _page(request, {})
    visit.require_change(Act.MANAGE_QUEUES, to="change queues")
    _require_member(visit)
    visit.require("definitions.import")
    text = _text_of(request)
    try:
        found = _read(text, visit.account_id)
        if request.POST.get("what") == "import":
            result = import_definitions(visit.actor, found, request.POST.get("digest", ""))
            return _page(request, {"result": result, "text": text if result.left else ""})
    except DefinitionsProblem as error:
        refusal = ErrorNotice(400, str(error), "Correct the document, or review the changes again.")
        return _page(request, {"text": text}, refusal)
    return _changes(request, visit, found, text)


@account_page(Act.READ_QUEUES, "GET")
def document(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """To be kept, or imported elsewhere."""
    _require_member(visit)
    visit.require("definitions.get")
    prefix, after = (request.GET.get(name, "").replace("\0", "")[:_NAME_CHARS_MAX] for name in ("prefix", "after"))
    content = write_definitions(export_definitions(visit.actor, prefix, after))
    answer = HttpResponse(content, content_type="application/json")
    answer["Content-Disposition"] = f'attachment; filename="penstock-{visit.account_id}.json"'
    return answer


def _changes(request: HttpRequest, visit: AccountVisit, found: Definitions, text: str) -> HttpResponse:
    changes = compare(visit.actor, found)
    shown: dict[str, object] = {
        "text": text,
        "changes": [one for one in changes if one.kind is not ChangeKind.NONE],
        "same": sum(one.kind is ChangeKind.NONE for one in changes),
        "refused": any(one.kind is ChangeKind.REFUSED for one in changes),
        "digest": digest_of(changes),
    }
    return _page(request, shown)


def _page(request: HttpRequest, shown: dict[str, object], refusal: ErrorNotice | None = None) -> HttpResponse:
    status = refusal.status if refusal else 200
    return render(request, "console/access/definitions.html", {**shown, "refusal": refusal}, status=status)


def _text_of(request: HttpRequest) -> str:
    """Of the file, or of the field."""
    given = request.FILES.get("file")
    if isinstance(given, UploadedFile) and given.size:
        return given.read(DOCUMENT_BYTES_MAX + 1).decode(errors="replace")
    return request.POST.get("document", "")


def _read(text: str, account_id: str) -> Definitions:
    """Raises DefinitionsProblem."""
    raw = text.encode(errors="replace")
    if len(raw) > DOCUMENT_BYTES_MAX:
        raise DefinitionsProblem(f"A document has at most {DOCUMENT_BYTES_MAX:,} bytes.")
    try:
        content = StrictJSONParser().parse(io.BytesIO(raw))
    except ParseError as error:
        raise DefinitionsProblem(str(error.detail)) from None
    return read_definitions(content, account_id)


def _require_member(visit: AccountVisit) -> None:
    """Each part of a document is weighed by the rights of who asks, and an operator has none. Raises AccessDenied."""
    if visit.acts_for is not None:
        raise AccessDenied("An operator who acts as a member takes and imports no definitions.")
