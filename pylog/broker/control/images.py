"""How this broker comes to the newest cluster image, and what waits for one.

The controller's images come from its own agent; every other broker pulls them with a long poll.  There is one way to
learn of a change and no second one: whoever missed something gets it by asking again.
"""

import asyncio
import logging
from collections.abc import Callable

from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.peers import PeerClient
from pylog.broker.tasks import Tasks
from pylog.cluster.image import ClusterImage
from pylog.cluster.image_codec import ImageHistory, decode_image
from pylog.errors import ApiError, ErrorCode, ProtocolError
from pylog.log.batch_file import OutOfDescriptors
from pylog.log.log import Log
from pylog.model import NodeAddress, TopicPartition
from pylog.wire.internal import InternalKey, Pull, encode_pull

_logger = logging.getLogger(__name__)

PULL_WAIT_MS = 2_000
"""How long a pull waits at the controller; also how soon a silent controller is noticed."""

PULL_TIMEOUT_S = PULL_WAIT_MS / 1000 + 5
_RETRY_S = 0.2

REOPEN_S = 1.0
"""How long logs rest that could not be opened for want of room or descriptors; no newer image may come for long."""


class Images:
    """Applies images in order and tells who waits.

    Attributes:
        on_applied: called on the loop after each image, with the partitions it changed.
    """

    def __init__(self, broker_id: int, partitions: Partitions, puller: PeerClient | None) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._puller = puller
        self._offered: ClusterImage | None = None
        self._has_offer = asyncio.Event()
        self._applied = asyncio.Condition()
        self._history = ImageHistory()
        self._controller: NodeAddress | None = None
        self._controller_changed = asyncio.Event()
        self._tasks = Tasks()
        self._preparing: asyncio.Task[dict[TopicPartition, Log | str]] | None = None
        self.on_applied: Callable[[list[Partition]], None] = lambda changed: None

    @property
    def current(self) -> ClusterImage:
        """The image in force."""
        return self._partitions.image

    def start(self) -> None:
        """Begin to apply and to pull."""
        self._tasks.spawn(self._apply_forever())
        self._tasks.spawn(self._pull_forever())

    async def stop(self) -> None:
        """Stop both; the image in force stays, and no thread is left that opens, makes or deletes logs."""
        self._partitions.stop_preparing()
        await self._tasks.stop()
        if self._preparing is not None:
            await asyncio.gather(self._preparing, return_exceptions=True)

    def offer(self, image: ClusterImage) -> None:
        """Take a newer image to apply; only the newest of several is applied."""
        if self._offered is None or image.order > self._offered.order:
            self._offered = image
            self._has_offer.set()

    def follow(self, controller: NodeAddress | None) -> None:
        """Pull from *controller* from now on; None when this broker is the controller or there is none."""
        if self._puller is not None and controller != self._controller:
            # A host that went or was cut off answers nothing: the pull under way would wait out its whole time.
            self._puller.close()
        self._controller = controller
        self._controller_changed.set()

    async def wait_until(self, condition: Callable[[ClusterImage], bool], timeout_s: float) -> bool:
        """Wait until the image in force fulfils *condition*; return whether it did in time."""
        try:
            async with asyncio.timeout(timeout_s), self._applied:
                await self._applied.wait_for(lambda: condition(self.current))
        except TimeoutError:
            return False
        return True

    def look_again(self) -> None:
        """Let those who wait ask their condition again: something beside the image changed."""
        self._tasks.spawn(self._notify())

    async def _notify(self) -> None:
        async with self._applied:
            self._applied.notify_all()

    async def news(self, order: tuple[int, int], wait_ms: int, format_version: int) -> bytes:
        """Return what makes of an image of *order* the newest one, waiting for it at most *wait_ms*, or nothing."""
        # Not the image in force: until our first one of this term is, that is our predecessor's.
        if not await self.wait_until(lambda image: self._history.order > order, min(wait_ms, PULL_WAIT_MS) / 1000):
            return b""
        return self._history.answer(order, format_version)

    async def _apply_forever(self) -> None:
        gone: list[Partition] = []
        while True:
            try:
                async with asyncio.timeout(REOPEN_S if self._partitions.has_waiting else None):
                    await self._has_offer.wait()
            except TimeoutError:
                await self._reopen()
                continue
            self._has_offer.clear()
            image, self._offered = self._offered, None
            if image is None or image.order <= self.current.order:
                continue
            gone += self._partitions.retire(image)
            try:
                opened = await self._prepare(image)
            except (OSError, OutOfDescriptors) as error:
                # The image in force stays, whole; nobody may offer this one again.
                _logger.error("image not applied epoch=%d version=%d reason=%s", *image.order, error)
                await asyncio.sleep(_RETRY_S)
                self.offer(image)
                continue
            changed = self._partitions.switch(image, opened, gone)
            gone = []
            if image.controller_id == self._broker_id:
                self._history.advance(image)
            self.on_applied(changed)
            await self._notify()

    async def _prepare(self, image: ClusterImage) -> dict[TopicPartition, Log | str]:
        """Prepare *image* in a thread, which no cancellation reaches: `stop` waits for it."""
        self._preparing = asyncio.create_task(asyncio.to_thread(self._partitions.prepare, image))
        return await asyncio.shield(self._preparing)

    async def _reopen(self) -> None:
        """Open logs of the image in force that could not be opened when it was applied."""
        try:
            opened = await self._prepare(self.current)
        except (OSError, OutOfDescriptors) as error:
            _logger.warning("logs not opened reason=%s", error)
            return
        logs = {key: log for key, log in opened.items() if isinstance(log, Log)}
        if logs:
            _logger.info("logs opened count=%d", len(logs))
            self.on_applied(self._partitions.switch(self.current, logs))
            async with self._applied:
                self._applied.notify_all()

    async def _pull_forever(self) -> None:
        while True:
            controller = self._controller
            if controller is None or self._puller is None:
                self._controller_changed.clear()
                if self._controller is controller:
                    await self._controller_changed.wait()
                continue
            try:
                before, partitions = self.current, self._partitions
                deleted = partitions.cleaned_topics(), partitions.removed_replicas()
                pull = Pull(self._broker_id, *before.order, PULL_WAIT_MS, *deleted)
                body = encode_pull(pull, partitions.format_version())
                answer = await self._puller.call(controller, InternalKey.PULL_IMAGE, body, PULL_TIMEOUT_S)
                image = await asyncio.to_thread(decode_image, answer, before) if answer else None
                if image is not None:
                    self.offer(image)
                    # The next pull asks for what is newer than what is in force, so that has to be this first.
                    await self.wait_until(lambda found, order=image.order: found.order >= order, PULL_TIMEOUT_S)  # type: ignore[misc]
            except (ApiError, ProtocolError) as error:
                if not (isinstance(error, ApiError) and error.code is ErrorCode.NOT_CONTROLLER):
                    _logger.warning("pull failed controller=%d reason=%s", controller.node_id, error)
                await asyncio.sleep(_RETRY_S)
