from tests.console.browsing import *
import pytest
@pytest.mark.django_db(transaction=True)
def test_pages(ann, storage, db):
    assert make_queue(ann, "orders", VisibilityTimeout="45", dead_letter_name="").status_code == 302
    for p in ["/console/me", ann.at(), ann.at("attention"), ann.at("queues"), ann.at("counts?names=orders"), ann.at("jump?q=ord"), ann.at("new-queue?preset=events"), ann.at("queues/orders"), ann.at("queues/orders/counts"), ann.at("queues/orders/edit"), ann.at("queues/orders/tags"), ann.at("queues/orders/access"), ann.at("queues/orders/purge"), ann.at("queues/orders/delete"), "/console/again", "/console/join", "/console/reset", "/console/new-password"]:
        r = ann.get(p)
        assert r.status_code == 200, (p, r.status_code, r.content[:500])
    r = ann.get("/console/nothing"); assert r.status_code == 404 and b"Not here" in r.content
