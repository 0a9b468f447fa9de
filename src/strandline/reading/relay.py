"""Workers of a subscription in processes of their own, each at the other end of a channel.

    the lister's process                       a worker process
    --------------------                       ----------------
    subscription.serve(1, channel)             worker = RemoteWorker(channel)
      takes a part, notes who has it     ◄──   take
      its descriptor                     ──►   fetches the rows, wherever it likes
      tells the accounts                 ◄──   arrived, or failed
      presses the worker's button        ◄──   press
      gives back what it still has       ◄──   dies

Leases, accounts and buttons stay in the lister's process, so the stop is the same one as between
threads (`stop`). A process that dies has not pressed: its parts go to whoever asks next, and if
nobody does, its times stay owed until another process is served in its place. What it had fetched
and not reported is fetched again.

A channel carries whole messages; a `multiprocessing` connection is one. Nothing is pickled.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from strandline.errors import CorruptionError, HandleClosedError
from strandline.reading.descriptor import decode_descriptor, encode_descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.model.clock import Clock
    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.subscribe import Worker

_log = logging.getLogger(__name__)

_LOOK_MS = 100
"""How often it is looked whether a process that waits for a part has pressed, or died."""
_NOTHING = b""
"""The answer to `take` when there is no part: the end, or the time ran out."""


class Channel(Protocol):
    """One end of a line between two processes."""

    def send_bytes(self, message: bytes, /) -> None: ...

    def recv_bytes(self) -> bytes:
        """The next message; `EOFError` when the other end is closed, which it is by a death."""
        ...

    def poll(self, timeout: float, /) -> bool:
        """Whether there is a message, or the end, within so many seconds."""
        ...

    def close(self) -> None: ...


class Take(msgspec.Struct, frozen=True, array_like=True, tag="take"):
    timeout_ms: int | None


class Arrived(msgspec.Struct, frozen=True, array_like=True, tag="arrived"):
    part: str


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    part: str
    why: str


class Press(msgspec.Struct, frozen=True, array_like=True, tag="press"):
    pass


Message: TypeAlias = Take | Arrived | Failed | Press

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class RemoteWorker:
    """A worker of a subscription that another process has; the same calls as a `Worker` there.

    For one thread. `press` alone may come at any moment, from a signal's handler too.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def take(self, timeout_ms: int | None = None) -> PartDescriptor | None:
        """The next part to fetch; `None` at the end, after `press`, or if the time ran out."""
        self._tell(Take(timeout_ms))
        try:
            answer = self._channel.recv_bytes()
        except (EOFError, OSError) as error:
            raise _gone() from error
        return None if answer == _NOTHING else decode_descriptor(answer)

    def __iter__(self) -> Iterator[PartDescriptor]:
        while True:
            part = self.take()
            if part is None:
                return
            yield part

    def arrived(self, descriptor: PartDescriptor) -> None:
        """Its rows are where they belong: nobody will be asked for them again."""
        self._tell(Arrived(descriptor.id))

    def failed(self, descriptor: PartDescriptor, error: Exception) -> None:
        """It could not be read, and will not be tried again: the frontier stays before it."""
        self._tell(Failed(descriptor.id, str(error)))

    def press(self) -> None:
        """Take nothing more. What others still owe stays held until all have pressed."""
        self._tell(Press())

    def _tell(self, message: Message) -> None:
        try:
            self._channel.send_bytes(_encoder.encode(message))
        except OSError as error:
            raise _gone() from error


def _gone() -> HandleClosedError:
    return HandleClosedError(
        "the process that lists is gone, and with it the lease on what was taken from it; "
        "subscribe again from the last frontier that it told"
    )


class Relay:
    """The lister's end: does for a worker process what it asks for."""

    def __init__(self, worker: Worker, channel: Channel, clock: Clock) -> None:
        self._worker = worker
        self._channel = channel
        self._clock = clock
        self._held: dict[str, PartDescriptor] = {}
        """What the process was given and has said nothing of."""

    def run(self) -> None:
        """Until the process has closed its end, or died; then nothing is left in its hands."""
        try:
            while True:
                self._carry_out(self._heard())
        except (EOFError, OSError):
            pass  # Which of the two it was shows in what it has still got.
        except CorruptionError as error:
            _log.error("%s: %s; it is not heard any more", self._worker, error)
        finally:
            self._channel.close()
            self._give_back()

    def _heard(self) -> Message:
        try:
            return _decoder.decode(self._channel.recv_bytes())
        except msgspec.DecodeError as error:
            raise CorruptionError(f"a message that makes no sense: {error}") from error

    def _carry_out(self, message: Message) -> None:
        match message:
            case Take():
                self._channel.send_bytes(self._next(message.timeout_ms))
            case Arrived():
                part = self._held.pop(message.part, None)
                if part is not None:
                    self._worker.arrived(part)
            case Failed():
                part = self._held.pop(message.part, None)
                if part is not None:
                    why = f"{part} could not be read by {self._worker}: {message.why}"
                    self._worker.failed(part, CorruptionError(why))
            case Press():
                self._worker.press()

    def _next(self, timeout_ms: int | None) -> bytes:
        """A part in its encoding. Who waits for one may press meanwhile, or die."""
        deadline = None if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        while True:
            left = None if deadline is None else deadline - self._clock.monotonic_ms()
            part = self._worker.take(_LOOK_MS if left is None else max(0, min(left, _LOOK_MS)))
            if part is not None:
                self._held[part.id] = part
                return encode_descriptor(part)
            if self._worker.ended or (left is not None and left <= 0):
                return _NOTHING
            if self._channel.poll(0):
                self._carry_out(self._heard())

    def _give_back(self) -> None:
        if self._held and not self._worker.ended:
            _log.warning(
                "%s is gone: %d parts go to whoever asks next", self._worker, len(self._held)
            )
        for part in self._held.values():
            self._worker.give_back(part)
        self._held.clear()
