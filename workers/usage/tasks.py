"""The task of a usage round. Outside late acknowledgements: a round takes minutes, the broker's visibility is 60 s.

What lets one worker work is a claim in the database that is renewed while a job runs (`ScheduleLock`), not the message:
a message that is lost, doubled or late costs nothing, the next round does what is due.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from workers import limits
from workers.application import app

_log = structlog.get_logger(__name__)


@app.task(name="workers.usage.settle_usage", acks_late=False, reject_on_worker_lost=False)
def settle_usage() -> None:
    from django.db import close_old_connections

    from api import clock
    from api.billing.selectors import settled_up_to
    from api.settings.environment import environment
    from api.settings.server_urls import DATABASE_URL, server_url
    from storage_nodes.model import format_node_list
    from workers.schedule import ScheduleLock
    from workers.spark_jobs.java import missing_parts
    from workers.spark_jobs.lake.manifest import Lake
    from workers.spark_jobs.source.stream_reading import USAGE_TAG_PREFIX, StreamReading
    from workers.usage.jobs import ClaimLost, JobFailed, run_job
    from workers.usage.rounds import UsageRound, ingest_and_settle
    from workers.usage.settling import merge_settlement

    lake_dir = environment().usage_lake
    if not lake_dir:
        return
    missing = missing_parts()
    if missing:
        _log.warning("usage_not_settled", missing=missing)
        return
    claim = ScheduleLock(server_url(DATABASE_URL), limits.USAGE_CLAIM_KEY)
    try:
        if not claim.hold():
            return
        lake = Lake(Path(lake_dir))
        nodes = format_node_list(environment().nodes())
        with StreamReading(environment().cluster_id, nodes) as reading:
            if not reading.partitions_tagged(USAGE_TAG_PREFIX):
                return  # nothing meters: Java is not started for nothing
        work = UsageRound(lake, environment().cluster_id, nodes, claim.hold, run_job, merge_settlement, settled_up_to)
        ingest_and_settle(work, int(clock.now().timestamp() * 1000))
    except (JobFailed, ClaimLost) as error:
        _log.warning("usage_not_settled", error=str(error))
    finally:
        claim.release()
        close_old_connections()
