"""What `scrub` tells beside the counts of the pass."""

from __future__ import annotations

import json
import time
from pathlib import Path

from deploy.commands.scrub import damage_lines
from storage_nodes.ids import make_node_id


def test_damage_that_a_start_found_and_repaired_is_told_with_its_file(tmp_path: Path) -> None:
    note = {"found_ms": int(time.time() * 1000), "path": "x.wal", "position": 7, "problem": "bad", "outcome": "kept"}
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    noted = tmp_path / "2" / "damage.log"
    noted.write_text((json.dumps(note) + "\n") * 2 + '\xff{"bad": }\n{"torn', "latin-1")
    (line,) = damage_lines(tmp_path, None)
    assert line.startswith("node 2: damage found 2 times, the last ") and line.endswith(f"bad; kept ({noted})")
    assert damage_lines(tmp_path, make_node_id(1, 2)) == [line]
    assert damage_lines(tmp_path, make_node_id(1, 1)) == []
