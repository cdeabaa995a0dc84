"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.iam.views import groups, keys, policies, simulation

urlpatterns = [
    path("keys/<name:access_key_id>/rotation", keys.KeyRotationView.as_view()),
    path("keys/<name:access_key_id>/policy", keys.KeyPolicyView.as_view()),
    path("keys/<name:access_key_id>/policies/<name:policy_name>", keys.KeyAttachmentView.as_view()),
    path("policies", policies.PoliciesView.as_view()),
    path("policies/simulate", simulation.SimulateView.as_view()),
    path("policies/<name:policy>", policies.PolicyView.as_view()),
    path("members/<uuid:person_id>/policies", policies.MemberPoliciesView.as_view()),
    path("members/<uuid:person_id>/policies/<name:policy_name>", policies.MemberAttachmentView.as_view()),
    path("groups", groups.GroupsView.as_view()),
    path("groups/<name:group>", groups.GroupView.as_view()),
    path("groups/<name:group>/members/<uuid:person_id>", groups.GroupMemberView.as_view()),
    path("groups/<name:group>/policies/<name:policy_name>", groups.GroupAttachmentView.as_view()),
]
