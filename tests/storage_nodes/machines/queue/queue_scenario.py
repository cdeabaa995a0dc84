"""Interpreter of the scenario texts in `testdata/`: a line `scenario NAME`, then one command a line. What it answers
stands below it, indented; `#` starts a comment.

queue fifo max_receives=2     a new queue, `standard` or `fifo` (first line). Settings: visibility (30s unless said),
                              retention, in_flight_max, max_receives, dedup (the window), retry (a pause that stays the
                              same), park (groups of dead letters are held)
send a b group=g              messages a and b, in one batch (delay=10s, dedup=ID)
receive 2 visibility=5s       up to 2 messages, 1 unless said (wait=20s, attempt=ID). Answer: a/1 b/1, the messages
                              with their receive counts; of a standard queue by name, since it promises no order
delete a/1 b                  by the receipt of the first receive of a, and that of the last one of b
change a 60s                  the visibility timeout, by a receipt as well
undelivered a                 the answer to the last receive of a reached no consumer
purge
configure max_receives=3      other settings
unpark g                      group g is not held any more
counts                        messages that wait, are in flight, are delayed
+30s                          let time pass (ms, s, min, h, d)

hold                          from here on nothing that is staged gets committed
commit                        all of it is, and what follows at once
fail over                     the other replica leads; what was staged and not committed is lost
checkpoint                    the replica that does not lead starts over from a checkpoint of the leader

copy                          the dead letters under way ("moves a b") are copied to the dead-letter queue
move                          the same, and the queue is told so
move fails                    the queue is told that they are not (move fails for good: that they never can be)
reasons                       why those died that were copied last
letters receive 10            a command to the dead-letter queue

An answer that comes later says to what: "receive wait=20s: a/1". "waits": there is no answer yet.
"""

from __future__ import annotations

import re
from difflib import unified_diff
from typing import NamedTuple

import msgspec

from storage_nodes.machines.driver_contract import Refuse
from storage_nodes.machines.queue.effects import CommandAnswer, DeadLetter, Deliver, Duplicated, Effect, Pick
from storage_nodes.protocol.dead_letters import copy_of_dead
from storage_nodes.protocol.deliveries import receives_of
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import DeadSource, DeathReason, QueueConfig, RetryKind
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DELAY_MS, HEADER_GROUP, decode_body, encode_body
from tests.storage_nodes.machines.queue.partition import NOW_MS, VISIBILITY_MS, Partition

INDENT = "    "
UNIT_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
TICKS_MAX = 1_000
QUEUE, LETTERS = 3, 7  # partitions
SETTINGS_MS = {"retention": "retention_ms", "dedup": "dedup_window_ms"}
FLAGS = {"park": "park_groups"}

Settings = dict[str, str]


class WrongAnswers(AssertionError):
    pass


class Step(NamedTuple):
    number: int  # of its line
    line: str
    answers: list[str]  # lines of the text


def ms_of(word: str) -> int:
    number, unit = re.split(r"(?<=\d)(?=\D)", word)
    return int(number) * UNIT_MS[unit]


def since_start(time_ms: int) -> str:
    return f"+{(time_ms - NOW_MS) / 1_000:g}s"


def words_of(line: str) -> list[str]:
    return line.split("#")[0].split()


def code_name(code: ErrorCode | DeathReason) -> str:
    return code.name.lower().replace("_", " ")


def configured(config: QueueConfig, words: list[str], settings: Settings) -> QueueConfig:
    fields: dict[str, object] = {FLAGS[word]: True for word in words}
    for name, value in settings.items():
        if name == "retry":
            pause = {"retry_kind": RetryKind.FIXED, "retry_delay_ms": ms_of(value), "retry_max_ms": ms_of(value)}
            fields |= pause
        elif name in SETTINGS_MS:
            fields[SETTINGS_MS[name]] = ms_of(value)
        else:
            fields[name] = int(value)
    return msgspec.structs.replace(config, dead_letter_partition=LETTERS, **fields)


def steps_of(text: str) -> list[Step]:
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(INDENT):
            steps[-1].answers.append(line)
        else:
            steps.append(Step(number, line, []))
    return steps


def scenarios_of(text: str) -> dict[str, str]:
    """By name."""
    parts = re.split(r"^scenario (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


class PlayedQueue:
    """One partition, with the names of its messages."""

    def __init__(self, config: QueueConfig, visibility_ms: int = VISIBILITY_MS) -> None:
        self.partition = Partition(config)
        self.visibility_ms = visibility_ms
        self.holds = False
        self._asked: list[str] = []  # by token
        self._open: set[int] = set()  # tokens without an answer
        self._present = -1  # token of the command that is being played
        self._seen = 0  # effects
        self._receipts: dict[str, Pick] = {}  # by "a/1"; by "a" the last one
        self._deadlines_ms: dict[Pick, int] = {}

    def ask(self, what: str) -> int:
        """A token for it."""
        self._present = len(self._asked)
        self._asked.append(what)
        self._open.add(self._present)
        return self._present

    def receipt(self, word: str) -> tuple[int, int]:
        return self._receipts[word][:2]

    def deadline_ms(self, word: str) -> int:
        return self._deadlines_ms[self._receipts[word]]

    def name_of(self, offset: int) -> str:
        return decode_body(self.partition.body(offset)).value.decode()

    def settle(self) -> None:
        if not self.holds:
            self.partition.commit()
            self.partition.check()

    def pass_ms(self, ms: int) -> None:
        """Step by step: what is staged on the way is committed there."""
        partition = self.partition
        until_ms = partition.now_ms + ms
        for _ in range(TICKS_MAX):
            due_ms = partition.leader.next_tick_ms()
            if not 0 < due_ms <= until_ms:
                break
            partition.now_ms = max(partition.now_ms, due_ms)
            partition.tick()
            self.settle()
        else:
            raise AssertionError("the machine asks to be woken again and again")
        partition.now_ms = until_ms

    # --- answers

    def answers(self) -> list[str]:
        """What came since the last command."""
        effects = self.partition.effects[self._seen :]
        self._seen = len(self.partition.effects)
        lines = [line for effect in effects for line in self._answers_in(effect)]
        if self._present in self._open:
            lines.append("waits")
        self._present = -1
        return lines

    def _answers_in(self, effect: Effect) -> list[str]:
        if isinstance(effect, Duplicated):
            return [f"{self.name_of(offset)} repeats {self.name_of(original)}" for offset, original in effect.pairs]
        if isinstance(effect, DeadLetter):
            return ["moves " + " ".join(self.name_of(letter.offset) for letter in effect.letters)]
        if not isinstance(effect, Deliver | CommandAnswer | Refuse) or effect.token is None:
            return []
        assert isinstance(effect.token, int)
        self._open.remove(effect.token)
        asked = self._asked[effect.token]
        answer = self._answer(effect, asked.split()[1:])
        return [answer if effect.token == self._present else f"{asked}: {answer}"]

    def _answer(self, effect: Deliver | CommandAnswer | Refuse, words: list[str]) -> str:
        if isinstance(effect, Refuse):
            return "refused, " + code_name(effect.code)
        if isinstance(effect, Deliver):
            receipts = [self._received(pick, effect.deadline_ms) for pick in effect.picks]
            return " ".join(receipts if self.partition.leader.is_fifo else sorted(receipts)) or "nothing"
        codes = effect.result
        if isinstance(codes, tuple):
            return code_name(codes[0])
        return ", ".join(f"{word} {code_name(code)}" for word, code in zip(words, codes, strict=False) if code) or "ok"

    def _received(self, pick: Pick, deadline_ms: int) -> str:
        name = self.name_of(pick.offset)
        receipt = f"{name}/{receives_of(pick.delivery)}"
        self._receipts[name] = self._receipts[receipt] = pick
        self._deadlines_ms[pick] = deadline_ms
        return receipt


class Scenario:
    def __init__(self, text: str) -> None:
        self._text = text
        self._queue = self._letters = PlayedQueue(QueueConfig())
        self._sources: dict[str, DeadSource] = {}  # of the letters that were copied last, by name

    def check(self) -> None:
        """Plays the text. Raises WrongAnswers, with the difference."""
        played = self._play()
        if played != self._text:
            lines = unified_diff(
                self._text.splitlines(), played.splitlines(), "the text", "as played", n=5, lineterm=""
            )
            raise WrongAnswers("\n".join(["", *lines]))

    def _play(self) -> str:
        """The text with the answers that came."""
        lines: list[str] = []
        for step in steps_of(self._text):
            words = words_of(step.line)
            try:
                found = self._do(words) if words else []
            except Exception as error:
                raise WrongAnswers(f"line {step.number}, {step.line!r}: {error!r}") from error
            is_right = found == [" ".join(words_of(line)) for line in step.answers]
            lines += [step.line, *(step.answers if is_right else [INDENT + answer for answer in found])]
        self._queue.holds = False
        self._queue.settle()
        return "".join(line + "\n" for line in lines)

    def _do(self, words: list[str]) -> list[str]:
        """Play a command; all that is answered by then."""
        queue = self._queue
        if words[0] == "letters":
            queue, words = self._letters, words[1:]
        said: list[str] | None = None
        plain = [word for word in words[1:] if "=" not in word]
        settings = dict(word.split("=") for word in words[1:] if "=" in word)
        if words[0] == "queue":
            self._new(plain, settings)
        elif words[0].startswith("+"):
            self._pass(ms_of(words[0][1:]))
        else:
            said = getattr(self, f"_{words[0]}")(queue, plain, settings)
        for each in (self._queue, self._letters):
            each.settle()
        lines = self._queue.answers()
        prefix = "" if queue is self._letters else "letters: "
        return [*(said or ()), *lines, *(prefix + line for line in self._letters.answers())]

    def _pass(self, ms: int) -> None:
        for each in (self._queue, self._letters):
            each.pass_ms(ms)

    def _new(self, words: list[str], settings: Settings) -> None:
        """queue fifo ..."""
        kind, *flags = words
        visibility_ms = ms_of(settings.pop("visibility", "30s"))
        config = configured(QueueConfig(fifo=kind == "fifo"), flags, settings)
        self._queue = PlayedQueue(config, visibility_ms)
        of_letters = msgspec.structs.replace(config, max_receives=0, dead_letter_partition=0, park_groups=False)
        self._letters = PlayedQueue(of_letters, visibility_ms)

    # --- requests

    def _send(self, queue: PlayedQueue, names: list[str], settings: Settings) -> None:
        headers = [(HEADER_GROUP, settings["group"].encode())] if "group" in settings else []
        headers += [(HEADER_DEDUP, settings["dedup"].encode())] if "dedup" in settings else []
        headers += [(HEADER_DELAY_MS, b"%d" % ms_of(settings["delay"]))] if "delay" in settings else []
        queue.partition.append([encode_body(name.encode(), headers=headers) for name in names], plain=not headers)

    def _receive(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        token = queue.ask(" ".join(["receive", *words, *(f"{name}={value}" for name, value in settings.items())]))
        queue.partition.acquire(
            token,
            int(words[0]) if words else 1,
            ms_of(settings["visibility"]) if "visibility" in settings else queue.visibility_ms,
            ms_of(settings["wait"]) if "wait" in settings else 0,
            settings.get("attempt", "").encode(),
        )

    def _delete(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        queue.partition.delete(queue.ask(" ".join(["delete", *words])), [queue.receipt(word) for word in words])

    def _change(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        *words, timeout = words
        changes = [(*queue.receipt(word), ms_of(timeout)) for word in words]
        queue.partition.change(queue.ask(" ".join(["change", *words, timeout])), changes)

    def _undelivered(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        partition = queue.partition
        for word in words:
            given_back = partition.leader.release([queue.receipt(word)], partition.now_ms, queue.deadline_ms(word))
            partition.perform(given_back)

    def _purge(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        queue.partition.purge(queue.ask("purge"))

    def _configure(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        machine = queue.partition.leader
        config = configured(machine.config, words, settings)
        queue.partition.perform(machine.configure(queue.ask("configure"), config))

    def _unpark(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        partition = queue.partition
        token = queue.ask(" ".join(["unpark", *words]))
        partition.perform(partition.leader.unpark(token, [word.encode() for word in words], partition.now_ms))

    def _counts(self, queue: PlayedQueue, words: list[str], settings: Settings) -> list[str]:
        waiting, in_flight, delayed = queue.partition.counts()
        return [f"{waiting} waiting, {in_flight} in flight, {delayed} delayed"]

    # --- the log

    def _hold(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        queue.holds = True

    def _commit(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        queue.holds = False

    def _fail(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        """fail over"""
        queue.holds = False
        queue.partition.fail_over()

    def _checkpoint(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        partition = queue.partition
        partition.rebuild_follower(partition.leader.checkpoint(), len(partition.log))

    # --- dead letters

    def _copy(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        move = queue.partition.moves[-1]
        self._sources = {
            queue.name_of(letter.offset): DeadSource(
                QUEUE, letter.offset, letter.sent_ms, letter.first_received_ms, letter.receives,
                DeathReason.MAX_RECEIVES, letter.died_ms, letter.receives_max, "", -1, move.term, move.move, move.kept,
            )
            for letter in move.letters
        }  # fmt: skip
        bodies = [copy_of_dead(source, queue.partition.body(source.offset)) for source in self._sources.values()]
        self._letters.partition.append(bodies, plain=False)

    def _move(self, queue: PlayedQueue, words: list[str], settings: Settings) -> None:
        partition = queue.partition
        if not words:
            self._copy(queue, words, settings)
        offsets = [letter.offset for letter in partition.moves.pop().letters]
        if words:
            partition.perform(partition.leader.move_failed(len(words) > 1, partition.now_ms))
        else:
            partition.perform(partition.leader.moved(offsets, partition.now_ms))

    def _reasons(self, queue: PlayedQueue, words: list[str], settings: Settings) -> list[str]:
        return [
            f"{name}: {code_name(DeathReason(source.reason))}, {source.receives} of {source.receives_max}, sent "
            f"{since_start(source.sent_ms)}, first received {since_start(source.first_received_ms)}, died "
            f"{since_start(source.died_ms)}"
            for name, source in self._sources.items()
        ]
