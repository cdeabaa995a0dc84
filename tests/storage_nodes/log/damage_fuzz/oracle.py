"""What may be found after crashes and damage. Each rule has a name, and a planted bug that breaks it (`planted.py`).

opens        opening for repair always succeeds
exact        without damage: every replica as of the last synced group or the one that was being written, no other
             is there, none became suspect, nothing is reported
trusted      with damage: a replica that is not suspect is exact, too
suspect      a suspect one holds a log that it once had, up to an end that this had: nothing invented, nothing that
             was truncated, dropped or replaced beside what was written later, no gap above `whole_from`
vote         no vote that was not given
checkpoint   no state but one that was written for that offset
missing      a replica is missing only where all are suspect
spared       a replica whose own files were spared is exact where the write-ahead log was spared too, and suspect
             only if it was before, the mark was hit, or the repair was cut short
kept         where its own files and the manifests were spared, what was flushed is there; or nothing, if the log ends
             below its checkpoint
blame        a read that finds damage names a file that was damaged
again        a second opening finds the same, and no damage; but where the log has come to end at a place that cannot be
             read, every replica may be suspect
ends         nothing but damage that was done, met by a read, ends or refuses what a node does with its log
leaks        files that nothing names are gone after some flushes
"""

from __future__ import annotations

from storage_nodes.log.errors import CorruptionError, UnreadableError
from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.partition_log import PartitionLog
from storage_nodes.log.record_batch import read_header
from storage_nodes.log.recovery import load_manifests
from storage_nodes.log.wal import GROUP_HEADER_BYTES, wal_name
from tests.storage_nodes.log.damage_fuzz.damages import MARK, WAL, Damages
from tests.storage_nodes.log.damage_fuzz.workload import DoubtedModel, Past, Workload
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.writing import read_all
from tests.support.seeded_fuzz import require

MANIFESTS = "/node/manifest"
# Of the write-ahead log: what a flush leaves, what the manifest before needs, the current one, spares.
WAL_FILES_MAX = 7


class Flushed:
    """What the manifest in force said before the process ended, or before the files were damaged at rest."""

    def __init__(self, disk: FaultyDisk, workload: Workload) -> None:
        try:
            loaded = load_manifests(disk, "/node")
        except CorruptionError:
            loaded = None  # they were damaged while they were used
        rows = loaded.newest.rows.values() if loaded else []
        own = [row for row in rows if row.partition not in workload.made_again]
        self.ends = {row.partition: (row.flushed_end, row.checkpoint_offset) for row in own}


def matched(workload: Workload, found: PartitionLog, exact: bool) -> tuple[DoubtedModel | None, list[str]]:
    """The model that the partition equals, or how it differs from each that it might be. `exact`: nor did it become
    suspect. Raises CorruptionError."""
    partition = found.partition
    differences = []
    for when, model in workload.expected(partition):
        problems = workload.problems_of(found, model)
        if model.suspect and not found.suspect:
            problems.append(f"{partition}: no longer suspect")
        if exact and found.suspect and not model.suspect and partition not in workload.doubted:
            problems.append(f"{partition}: became suspect")
        if not problems:
            return model, []
        differences.append(f"{when}: {problems}")
    return None, differences or [f"{partition} came back"]


def judge_undamaged(workload: Workload, log: NodeLog) -> dict[int, DoubtedModel]:
    """The models that the partitions equal."""
    require("exact", not log.damage, f"damage where there is none: {log.damage}")
    models = {}
    for partition, found in log.partitions.items():
        model, problems = matched(workload, found, exact=True)
        require("exact", model is not None, problems)
        assert model is not None
        models[partition] = model
    missing = [p for p in workload.synced if p in workload.staged and p not in models]
    require("exact", not missing, f"missing: {missing}")
    return models


def judge_damaged(workload: Workload, log: NodeLog, damages: Damages, flushed: Flushed, was_cut: bool) -> None:
    logs = log.partitions
    due = [p for p in workload.synced if p in workload.staged and p not in logs]
    all_suspect = all(found.suspect for found in logs.values())
    require("missing", not due or (all_suspect and (damages.hit(WAL) or damages.lost_manifests)), f"missing: {due}")
    for partition, found in logs.items():
        require("trusted", bool(workload.expected(partition)) or found.suspect, f"{partition} came back")
        try:
            stored = read_all(found)
            checkpoint = found.checkpoint or b""
        except CorruptionError as error:
            # Its node puts an empty log in the place of this one.
            require("blame", damages.explains(error.path), f"{error} after {damages.done}")
            continue
        past = workload.past[partition]
        known = (found.checkpoint_offset, checkpoint) in past.checkpoints
        require("checkpoint", known, f"{partition}: no state of {found.checkpoint_offset} is {checkpoint!r}")
        vote = found.epoch, found.voted_for
        given = vote in past.votes or (not found.voted_for and found.epoch < past.epoch_free)
        require("vote", given, f"{partition}: nobody voted {vote}")
        judge_log(found, stored, past)
        judge_loss(workload, found, damages, flushed, was_cut)


def judge_log(found: PartitionLog, stored: list[bytes], past: Past) -> None:
    """It is one that the replica once had, but for what may be gone."""
    name = found.partition
    require("suspect", all(batch in past.before for batch in stored), f"{name}: an entry that nobody wrote")
    require("suspect", found.log_end in past.ends, f"{name}: ends at {found.log_end}, where nothing ever ended")
    require("suspect", found.checkpoint_offset <= found.log_end, f"{name}: ends below its checkpoint")
    if not stored:
        require("suspect", found.whole_from == found.log_end, f"{name}: no entry, whole from {found.whole_from}")
        return
    once_had, batch = [], stored[-1]
    while batch is not None:
        once_had.append(batch)
        batch = past.before[batch]
    once_had.reverse()
    bases = [read_header(batch).base_offset for batch in stored]
    require("suspect", bases == sorted(set(bases)), f"{name}: entries out of order, {bases}")
    needed = [batch for batch in once_had if read_header(batch).base_offset >= found.whole_from]
    gaps = [read_header(batch).base_offset for batch in needed if batch not in stored]
    require("suspect", not gaps, f"{name}: whole from {found.whole_from}, yet nothing at {gaps}")
    last_end = read_header(stored[-1]).end_offset
    whole = found.log_end == last_end or found.whole_from >= found.log_end
    require("suspect", whole, f"{name}: a gap from {last_end} on")
    alien = [base for base, batch in zip(bases, stored, strict=True) if batch not in once_had]
    require("suspect", not alien, f"{name}: of another log than its end: {alien}")


def judge_loss(workload: Workload, found: PartitionLog, damages: Damages, flushed: Flushed, was_cut: bool) -> None:
    """No more is lost or doubted than the damage can explain. What a repair that was cut short wrote to the write-ahead
    log follows nothing in it, which makes every replica suspect."""
    model, problems = matched(workload, found, exact=not damages.hit(WAL, MARK) and not was_cut)
    require("trusted", found.suspect or model is not None, problems)
    own = found.partition in damages.partitions()
    if own or damages.lost_manifests:
        return
    if not damages.hit(WAL):
        require("spared", model is not None, f"{problems} after {damages.done}")
    end, checkpoint = flushed.ends.get(found.partition, (0, 0))
    if not damages.hit(MANIFESTS) and found.partition in workload.synced:
        fell_short = not found.log_end and found.suspect and checkpoint > end
        require("kept", found.log_end >= end or fell_short, f"{found.partition}: ends at {found.log_end} of {end}")


def states(log: NodeLog) -> dict[int, tuple[object, ...]]:
    """What two openings of the same files must agree on."""
    found: dict[int, tuple[object, ...]] = {}
    for partition, one in log.partitions.items():
        try:
            stored: object = read_all(one)
        except CorruptionError as error:
            stored = error.path
        found[partition] = one.suspect, one.epoch, one.voted_for, one.log_end, one.checkpoint_offset, stored
    return found


def ends_unreadable(log: NodeLog, disk: FaultyDisk) -> bool:
    """Can the place not be read where the next group will be written? Nobody knows that none was."""
    next_group = log._wal.gathering
    path = WAL + wal_name(next_group.file_number)
    try:
        disk.open(path).read(next_group.position, GROUP_HEADER_BYTES)
    except UnreadableError:
        return True
    except FileNotFoundError:
        pass  # it begins with that group
    return False


def judge_again(before: dict[int, tuple[object, ...]], again: NodeLog, unreadable: bool) -> None:
    """`unreadable`: so is the end of the log that was opened before."""
    require("again", not again.damage or unreadable, f"damage was found twice: {again.damage}")
    after = states(again)
    if unreadable:
        before, after = _logs_of(before), _logs_of(after)
    require("again", before == after, f"{_short(before)}, and then {_short(after)}")


def judge_files(log: NodeLog, disk: FaultyDisk) -> None:
    """After some flushes."""
    manifests = log._manifests
    needed = {path for one in log.partitions.values() for path in manifests.files_of(one)}
    needed.update(path for path, _to_trash in manifests._garbage)
    for directory in ("/node/segments", "/node/checkpoints"):
        left = {f"{directory}/{name}" for name in disk.list_directory(directory)} - needed
        require("leaks", not left, sorted(left))
    names = disk.list_directory("/node/wal")
    require("leaks", len(names) <= WAL_FILES_MAX, names)
    directories = ("wal", "segments", "checkpoints", "trash")
    names = [name for name in disk.list_directory("/node") if name not in (*directories, "synced", "damage.log")]
    require("leaks", len(names) == 2 and all(name.startswith("manifest-") for name in names), names)


def _short(found: dict[int, tuple[object, ...]]) -> dict[int, tuple[object, ...]]:
    return {partition: state[:-1] for partition, state in found.items()}


def _logs_of(found: dict[int, tuple[object, ...]]) -> dict[int, tuple[object, ...]]:
    """Without suspicion, which raises the epoch, too."""
    return {partition: state[3:] for partition, state in found.items()}
