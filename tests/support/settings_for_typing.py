"""Django settings for mypy's plugin, which must import them: the real ones, with an environment made up for it.

Nothing is connected to: the plugin only reads models and options.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from deploy.make_secrets import SECRET_NAMES

if "PENSTOCK_SECRETS_DIR" not in os.environ:
    _directory = tempfile.TemporaryDirectory(prefix="penstock-typing-")
    for _name in SECRET_NAMES:
        (Path(_directory.name) / _name).write_text("00" * 32)
        (Path(_directory.name) / _name).chmod(0o600)
    os.environ["PENSTOCK_SECRETS_DIR"] = _directory.name
os.environ.setdefault("DATABASE_URL", "postgresql://typing@127.0.0.1:1/typing")

from api.settings.project import *  # noqa: F403
