"""Certificates of processes, as the launcher makes them, for tests: good ones, and of others."""

from __future__ import annotations

import ssl
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


def context_that_shows(shown: str, authority: InnerAuthority, folder: Path) -> ssl.SSLContext:
    """Of a caller who believes this authority, and shows `nothing`, a certificate of another authority (`theirs`), of
    another cluster (`foreign`), or of the role of this name."""
    if shown == "foreign":
        return authority.foreign(InnerRole.FRONT_END).current.client
    if shown not in ("nothing", "theirs"):
        return authority.credentials(InnerRole(shown)).current.client
    believing = authority.credentials(InnerRole.FRONT_END)
    if shown == "nothing":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.load_verify_locations(authority.files(InnerRole.FRONT_END).authority)
        context.set_alpn_protocols([believing.mode])
        return context
    theirs = InnerAuthority(folder / "theirs").files(InnerRole.FRONT_END)
    believing.current.client.load_cert_chain(theirs.certificate, theirs.key)
    return believing.current.client
