"""Certificates of processes, as the launcher makes them, for tests: good ones, and of others."""

from __future__ import annotations

from pathlib import Path

from deploy import certificates
from storage_nodes.trust.credentials import CredentialFiles, Credentials, InnerTlsMode
from storage_nodes.trust.names import InnerName, InnerRole

CLUSTER = "pk-test"


class InnerAuthority:
    """An authority of its own, with all that it issues."""

    def __init__(self, folder: Path, cluster_id: str = CLUSTER, mode: InnerTlsMode = InnerTlsMode.ENCRYPT) -> None:
        self.folder = folder
        self._cluster_id = cluster_id
        self._mode = mode

    def files(
        self, role: InnerRole, number: str = "1", cluster_id: str = "", days: int = certificates.CERTIFICATE_DAYS
    ) -> CredentialFiles:
        name = InnerName(cluster_id or self._cluster_id, role, number)
        place = self.folder / (cluster_id or self._cluster_id)
        certificates.settle(self.folder, place, [name], days)
        return certificates.files_of(place, name)

    def credentials(self, role: InnerRole, number: str = "1", mode: InnerTlsMode | None = None) -> Credentials:
        return Credentials(self._cluster_id, self.files(role, number), mode or self._mode)

    def foreign(self, role: InnerRole, number: str = "1", cluster_id: str = "pk-other") -> Credentials:
        """Of another cluster, signed by the same authority; it would let us in."""
        return Credentials(cluster_id, self.files(role, number, cluster_id), self._mode)
