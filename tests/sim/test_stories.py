"""Stories told to production brokers: each showed a loss once, and breaks no invariant now."""

import pytest

from tests.sim.stories import STORIES
from tests.sim.test_seeds import simulate


@pytest.mark.parametrize("name", STORIES)
def test_a_story_breaks_no_invariant(name: str) -> None:
    done = simulate("--story", name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_story_is_refused_by_name() -> None:
    done = simulate("--story", "once-upon-a-time")
    assert done.returncode == 1
    assert "unknown story 'once-upon-a-time'; known: all, remake-beside-a-deaf-follower" in done.stderr
