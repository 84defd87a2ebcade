"""Letting the whole cluster write the formats of this release; see docs/design/formats.md."""

import logging

from pylog.broker.control.api import PeerApi
from pylog.broker.control.controller import ActiveController
from pylog.cluster.formats import NEWEST_LEVEL
from pylog.errors import ApiError, ErrorCode
from pylog.wire.internal import InternalKey, encode_count, parse_count

_logger = logging.getLogger(__name__)


def finalize(controller: ActiveController) -> int:
    """Let the formats of this release be written from now on; return their level.

    Raises:
        ApiError: a broker runs an older release.
    """
    state = controller.state
    level = state.plan_finalize()
    if level != state.level:
        controller.tree.write_level(controller.fence, level)
        _logger.info("finalized level=%d before=%d", level, state.level)
        state.level = level
        controller.mark_changed()
    return level


def check_finalized(level: int) -> None:
    """Compare the level that a controller says it has finalized with this release's.

    Raises:
        ApiError: FEATURE_UPDATE_FAILED; the controller runs an older release, which raises nothing that it cannot read.
    """
    if level < NEWEST_LEVEL:
        message = f"the controller knows formats up to level {level} only: it runs an older release, upgrade it first"
        raise ApiError(ErrorCode.FEATURE_UPDATE_FAILED, message)


def _encode_no_question(question: None) -> bytes:
    return b""


def _parse_no_question(body: bytes) -> None:
    return None


FINALIZE = PeerApi(
    key=InternalKey.FINALIZE,
    execute=lambda controller, question: finalize(controller),
    encode=_encode_no_question,
    parse=_parse_no_question,
    encode_result=encode_count,
    parse_result=parse_count,
)
