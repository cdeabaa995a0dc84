"""Until when the certificate of the public port is good, as the launcher's state names its file. Front ends have it, in
other processes: they tell Prometheus."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography import x509


def expires_at(state_file: Path) -> float | None:
    """Seconds since the epoch. None: no launcher runs this installation, the port speaks plain HTTP, or the file cannot
    be read from here; `./penstock doctor` says what is wrong with it then."""
    try:
        path = json.loads(state_file.read_text()).get("tls_certificate")
        return x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc.timestamp() if path else None
    except (OSError, ValueError):
        return None
