"""A life in which files are damaged while they are used: whatever reads them meets it, and does what a node does then.

A damaged segment or checkpoint: the replica is emptied, and suspect. A damaged manifest: both are written anew. Damage
to the write-ahead log ends the process.
"""

from __future__ import annotations

import os
import random
from unittest import mock

from storage_nodes.log import verify
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.manifest import manifest_version
from storage_nodes.log.verify import StoredFile
from tests.storage_nodes.log.damage_fuzz.damages import Damages
from tests.storage_nodes.log.damage_fuzz.workload import OPERATIONS, Workload
from tests.storage_nodes.log.modelled_log import PARTITIONS
from tests.storage_nodes.log.writing import read_all
from tests.support.seeded_fuzz import require

STEPS = 40
READING = ("read", "read", "read_state", "scrub", "scrub", "purge")
PIECE_BYTES = 300


class Maintenance:
    def __init__(self, workload: Workload, damages: Damages, rnd: random.Random) -> None:
        self._workload = workload
        self._damages = damages
        self._rnd = rnd

    def live(self) -> None:
        """Damage, and then what reads the files, between operations that go on."""
        workload, rnd = self._workload, self._rnd
        for at in range(STEPS):
            if (self._damages.left and rnd.random() < 0.3) or not at:
                self._damages.do(workload.disk, in_use=True)
                workload.trace.append(f"damage in use: {self._damages.done[-1]}")
            try:
                if rnd.random() < 0.5:
                    self._read(rnd.choice(READING))
                else:
                    workload.do(rnd.choice(OPERATIONS), rnd.randint(1, PARTITIONS), rnd.randint(0, 400))
            except FileNotFoundError as error:
                # To a rewrite this is a flush that was quicker: it leaves the segment alone.
                require("blame", self._damages.explains(error.filename), f"{error} after {self._damages.done}")
            except CorruptionError as error:
                if not self._met(error):
                    workload.trace.append("damage ended the process")
                    return

    def _read(self, what: str) -> None:
        workload, log = self._workload, self._workload.log
        workload.trace.append(what)
        if what == "scrub":
            self._scrub()
        elif what == "purge":
            log.purge_trash(0, 0)
        elif log.partitions:
            found = log.partitions[self._rnd.choice(sorted(log.partitions))]
            model, stored = workload.staged[found.partition], read_all(found)
            needed = [e.batch for e in model.entries if e.base not in workload.droppable[found.partition]]
            intact = set(needed) <= set(stored) <= {e.batch for e in model.entries}
            require("trusted", intact, f"{found.partition}: a read gives something else than was written")
            if what == "read_state":
                state = found.checkpoint_offset, found.checkpoint or b""
                require("checkpoint", state in workload.past[found.partition].checkpoints, state)

    def _scrub(self) -> None:
        """All stored files. While another thread lists them, partitions are made."""
        made = PARTITIONS

        def list_one(*values: object) -> StoredFile:
            nonlocal made
            if values[0] != verify.NO_PARTITION and made == PARTITIONS:
                made += 1
                self._workload.log.partitions[made] = self._workload.log.partitions[values[0]]  # type: ignore[index]
            return StoredFile(*values)  # type: ignore[arg-type]

        log = self._workload.log
        with mock.patch.object(verify, "StoredFile", list_one):
            try:
                files = log.stored_files()
            finally:
                log.partitions.pop(made, None) if made > PARTITIONS else None
        for file in files:
            try:
                list(log.verify(file, PIECE_BYTES))
            except CorruptionError as error:
                require("blame", self._damages.explains(error.path), f"{error} after {self._damages.done}")
                if not self._met(error):
                    raise

    def _met(self, error: CorruptionError) -> bool:
        """Does what a node does about the damage; False: the process ends."""
        require("blame", self._damages.explains(error.path), f"{error} after {self._damages.done}")
        workload = self._workload
        name = os.path.basename(error.path)
        workload.trace.append(f"met {error.path}")
        try:
            return self._mend(name, error.path)
        except CorruptionError as another:
            return self._met(another)

    def _mend(self, name: str, path: str) -> bool:
        workload = self._workload
        if name.endswith((".seg", ".ckp")):
            partition = int(name.split("-")[0], 16)
            if workload.log.needs(partition, path):
                workload.end_plan()
                workload.reset(partition, 0)
            return True
        if manifest_version(name) is not None:
            workload.end_plan()
            workload.restate(1, 0)
            return True
        return False
