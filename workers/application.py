"""The Celery application: broker, delivery rules, schedule. No result backend, no events: rows hold results."""

from __future__ import annotations

import gc
import logging
import os

from celery import Celery
from celery.schedules import crontab
from celery.signals import beat_init, setup_logging, worker_init, worker_process_shutdown, worker_shutdown
from kombu import Exchange, Queue

from api.alarms.limits import JUDGE_INTERVAL_S
from api.billing.limits import CLOSE_INTERVAL_S, METER_INTERVAL_S
from api.limits import (
    AUDIT_TRIM_HOUR,
    AUDIT_TRIM_MINUTE,
    CRON_INTERVAL_S,
    DATA_KEYS_FORGET_INTERVAL_S,
    RESYNC_INTERVAL_S,
)
from api.people.limits import UPKEEP_INTERVAL_S
from api.series.limits import COLLECT_INTERVAL_S, ROLL_INTERVAL_S
from api.settings.environment import billing_interval_s
from api.settings.server_urls import BROKER_URL, server_url
from api.webhooks.limits import DELIVER_INTERVAL_S
from workers import limits

# A worker takes from all of them, one that is started with `-Q` from those that it names.
QUEUES = ("lifecycle", "moves", "cron", "billing", "series", "webhooks")
LIFECYCLE_QUEUE, MOVES_QUEUE, CRON_QUEUE, BILLING_QUEUE, SERIES_QUEUE, WEBHOOKS_QUEUE = QUEUES
# Not among `task_queues`, which every worker takes: only a worker with `-Q usage -c 1` does, for a task takes minutes.
USAGE_QUEUE = "usage"
USAGE_PROCESS = "usage-worker"

app = Celery("penstock", set_as_current=True, fixups=[])
app.conf.update(
    broker_url=server_url(BROKER_URL),
    # For ever: rows carry the work meanwhile (workers/watcher.py), and the broker may be away for hours.
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": limits.BROKER_VISIBILITY_S,
        "unacked_restore_interval": limits.BROKER_RESTORE_INTERVAL_S,
        "unacked_restore_throttle": limits.BROKER_RESTORE_THROTTLE_S,
        "socket_timeout": limits.BROKER_SOCKET_TIMEOUT_S,
        "socket_keepalive": True,
    },
    task_default_queue=LIFECYCLE_QUEUE,
    task_queues=[Queue(name, Exchange(name, type="direct"), name) for name in QUEUES],
    task_routes={
        "workers.moves.*": {"queue": MOVES_QUEUE},
        "workers.cron.*": {"queue": CRON_QUEUE},
        "workers.billing.*": {"queue": BILLING_QUEUE},
        "workers.series.*": {"queue": SERIES_QUEUE},
        "workers.webhooks.*": {"queue": WEBHOOKS_QUEUE},
        "workers.usage.*": {"queue": USAGE_QUEUE},
    },
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_pool="threads",
    worker_concurrency=limits.WORKER_THREADS,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    worker_enable_remote_control=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    include=["workers.tasks"],
    beat_scheduler="workers.schedule:LockedScheduler",
    beat_schedule={
        "resync": {
            "task": "workers.lifecycle.resync",
            "schedule": float(RESYNC_INTERVAL_S),
            # A tick nobody took before the next one is due is worth nothing.
            "options": {"expires": RESYNC_INTERVAL_S},
        },
        "forget_old_keys": {
            "task": "workers.lifecycle.forget_old_keys",
            "schedule": float(DATA_KEYS_FORGET_INTERVAL_S),
            "options": {"expires": DATA_KEYS_FORGET_INTERVAL_S},
        },
        "remove_old_audit_entries": {
            "task": "workers.lifecycle.remove_old_audit_entries",
            # By the hour of the day: a schedule that is started again every day would never come to its end.
            "schedule": crontab(hour=AUDIT_TRIM_HOUR, minute=AUDIT_TRIM_MINUTE),
            "options": {"expires": 3_600},
        },
        "people_upkeep": {
            "task": "workers.lifecycle.people_upkeep",
            "schedule": float(UPKEEP_INTERVAL_S),
            "options": {"expires": UPKEEP_INTERVAL_S},
        },
        "cron": {
            "task": "workers.cron.hand_over_ticks",
            "schedule": float(CRON_INTERVAL_S),
            "options": {"expires": CRON_INTERVAL_S},
        },
        **{
            f"billing_{name}": {
                "task": f"workers.billing.{name}",
                "schedule": float(interval_s),
                "options": {"expires": interval_s},
            }
            for name, interval_s in (
                ("refresh_drafts", billing_interval_s()),
                ("issue_months", CLOSE_INTERVAL_S),
                ("watch_budgets", billing_interval_s()),
                ("read_meter", METER_INTERVAL_S),
            )
        },
        **{
            f"series_{name}": {
                "task": f"workers.series.{name}",
                "schedule": float(interval_s),
                "options": {"expires": interval_s},
            }
            for name, interval_s in (
                ("collect_series", COLLECT_INTERVAL_S),
                ("roll_series", ROLL_INTERVAL_S),
                ("judge_alarms", JUDGE_INTERVAL_S),
                ("mail_alarms", JUDGE_INTERVAL_S),
            )
        },
        "webhooks": {
            "task": "workers.webhooks.deliver_webhooks",
            "schedule": float(DELIVER_INTERVAL_S),
            "options": {"expires": DELIVER_INTERVAL_S},
        },
    },
    timezone="UTC",
)
# Without a lake no worker takes the queue, and its ticks would stay in the broker.
if os.environ.get("PENSTOCK_USAGE_LAKE"):
    app.conf.beat_schedule["usage"] = {
        "task": "workers.usage.settle_usage",
        "schedule": float(limits.USAGE_INTERVAL_S),
        "options": {"expires": limits.USAGE_INTERVAL_S},
    }


@setup_logging.connect
def _log_as_json(**_: object) -> None:
    from api.observability import configure_logging

    configure_logging(os.environ.get("PENSTOCK_LOG_LEVEL", "info"))
    for name in ("celery.worker.strategy", "celery.app.trace", "celery.beat"):
        logging.getLogger(name).setLevel(logging.WARNING)  # a line per task says nothing the task's own does not


@worker_init.connect
def _start_worker(**_: object) -> None:
    os.environ.setdefault("PENSTOCK_PROCESS", "worker")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "api.settings.project")
    import django

    gc.disable()  # what is imported stays
    django.setup()
    from api.settings.environment import environment

    gc.freeze()
    gc.enable()
    if os.environ["PENSTOCK_PROCESS"] != USAGE_PROCESS:
        _start_watching()
    _serve_operators_port(environment().metrics_listen)


def _start_watching() -> None:
    """What every worker does beside its tasks, but for the one of Spark's jobs."""
    from workers.cron import firing  # noqa: F401
    from workers.lifecycle import reconciling  # noqa: F401  # imported now, and not with the first hint
    from workers.moves import slices  # noqa: F401
    from workers.storage import storage
    from workers.watcher import start_watcher

    storage()
    start_watcher()


@beat_init.connect
def _start_schedule(**_: object) -> None:
    os.environ.setdefault("PENSTOCK_PROCESS", "schedule")
    _serve_operators_port(os.environ.get("PENSTOCK_METRICS_LISTEN", ""))


def _serve_operators_port(listen: str) -> None:
    from api.observability import always_healthy, serve_operators_port_in_thread

    if listen:
        host, _, port = listen.rpartition(":")
        try:
            serve_operators_port_in_thread(host.strip("[]"), int(port), always_healthy)
        except OSError as error:  # a signal's receiver that fails is only logged by Celery; this ends the process
            raise SystemExit(f"nothing can listen on {listen}, the operators' port of this process: {error}") from None


@worker_shutdown.connect
@worker_process_shutdown.connect
def _stop_worker(**_: object) -> None:
    from workers.storage import close_storage
    from workers.watcher import stop_watcher

    stop_watcher()
    close_storage()
