"""How much is tried."""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

EFFORT = int(os.environ.get("PYLOG_FUZZ_EFFORT", "1"))
"""Times the examples of `make test`; above 1 they are other ones each time."""


def effort(examples: int) -> settings:
    """Return settings for *examples* examples of `make test`."""
    return settings(
        max_examples=examples * EFFORT,
        deadline=None,
        database=None,
        derandomize=EFFORT == 1,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )


PIECES = (
    b"", b"\x00", b"\x01", b"\xff", b"\x80", b"\x7f", b"\x7f\xff", b"\xff\xff", b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff", b"\x00\x00\x10\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x00" * 8,
)  # fmt: skip
"""What lengths, counts and varints go wrong by."""


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, most: int = 4) -> bytes:
    """Return *whole* with up to *most* places overwritten, cut out or grown."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(content)))
        cut = draw(st.sampled_from((0, 0, 1, 1, 2, 4, 8, 1 << 20)))
        content[at : at + cut] = draw(st.sampled_from(PIECES) | st.binary(max_size=6))
    return bytes(content)
