"""Names in documents that the code does not define, each with whose it is."""

OUTSIDE_NAMES = {
    "AWS_CA_BUNDLE": "boto3's",
    "CLOCK_REALTIME": "the kernel's clock",
    "PYTHONHASHSEED": "Python's",
    "Restart": "systemd's",
    "SO_REUSEPORT": "the kernel's option of sockets",
    "__cluster": "the cluster partition's log, in prose",
    "app": "an application of Celery, `app.control`",
    "pg_dump": "PostgreSQL's",
    "pg_snapshot_xmin": "PostgreSQL's",
    "worker_enable_remote_control": "Celery's",
}
