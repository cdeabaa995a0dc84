"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.billing import views

urlpatterns = [
    path("billing/usage", views.UsageView.as_view()),
    path("billing/meter", views.MeterView.as_view()),
    path("billing/invoices", views.InvoicesView.as_view()),
    path("billing/invoices/<uuid:invoice_id>", views.InvoiceView.as_view()),
    path("billing/invoices/<uuid:invoice_id>.csv", views.InvoiceCsvView.as_view()),
    path("billing/invoices/<uuid:invoice_id>.pdf", views.InvoicePdfView.as_view()),
    path("billing/notes/<uuid:note_id>", views.NoteView.as_view()),
    path("billing/notes/<uuid:note_id>.csv", views.NoteCsvView.as_view()),
    path("billing/notes/<uuid:note_id>.pdf", views.NotePdfView.as_view()),
    path("billing/budgets", views.BudgetsView.as_view()),
    path("billing/budgets/<name:name>", views.BudgetView.as_view()),
    path("billing/budget-events", views.BudgetEventsView.as_view()),
    path("billing/plans", views.PlansView.as_view()),
    path("billing/credits", views.CreditsView.as_view()),
]
