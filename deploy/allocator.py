"""How the C library hands out memory to every process of an installation.

Two arenas, however many threads: more of them keep more memory that is free.

Buffers of a busy process are 100 KiB to some MiB: a group of messages, its frame, what a socket brought. Where naming
a trim threshold alone freezes glibc's mmap threshold at 128 KiB (mallopt(3)), each of those is a mapping of its own,
made, filled with zeros page by page as it is touched, and taken down again, several times a batch. Below
MMAP_THRESHOLD_BYTES they come from the heap instead, and TRIM_THRESHOLD_BYTES of the heap's free end stay mapped for
the next one. What is larger, or freed beyond that, goes back to the system at once.
"""

from __future__ import annotations

ARENAS_MAX = 2
MMAP_THRESHOLD_BYTES = 4 * 1024 * 1024
TRIM_THRESHOLD_BYTES = 8 * 1024 * 1024

# As glibc reads them at the start of a process; other C libraries ignore them.
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": str(ARENAS_MAX),
    "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD_BYTES),
}
