from pathlib import Path

import pytest

from pylog.log.epochs import LeaderEpochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    found = LeaderEpochs(tmp_path)
    for epoch, start in [(2, 0), (3, 10), (7, 20)]:
        found.assign(epoch, start)
    return found


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 0)),  # smaller than any we know: they part no later than where ours begins
        (2, (2, 10)),
        (3, (3, 20)),
        (5, (3, 20)),
        (7, (7, 33)),
        (8, (-1, -1)),
    ],
)
def test_end_offset_of_the_largest_epoch_not_above(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset(asked, log_end_offset=33) == answer


def test_nothing_is_known_of_an_empty_log(tmp_path: Path) -> None:
    assert LeaderEpochs(tmp_path).end_offset(0, 0) == (-1, -1)


def test_the_file_is_kafka_s(epochs: LeaderEpochs, tmp_path: Path) -> None:
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n2 0\n3 10\n7 20\n"
    again = LeaderEpochs(tmp_path)
    assert again.load()
    assert again.entries() == epochs.entries()
    assert again.latest == 7


@pytest.mark.parametrize(
    "content",
    [
        "",
        "0\n",
        "1\n0\n",
        "0\n2\n1 0\n",
        "0\n1\nx y\n",
        "0\n1\n1\n",
        "0\n2\n1 0\n2 1",
        "0\n2\n1 5\n2 5\n",
        "0\n2\n2 0\n2 5\n",
    ],
)
def test_a_damaged_file_is_not_believed(tmp_path: Path, content: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(content)
    epochs = LeaderEpochs(tmp_path)
    assert not epochs.load()
    assert epochs.entries() == []


def test_an_epoch_under_which_nothing_was_written_gives_way(epochs: LeaderEpochs) -> None:
    epochs.assign(8, 40)
    epochs.assign(9, 40)
    assert epochs.entries() == [(2, 0), (3, 10), (7, 20), (9, 40)]


def test_an_older_epoch_changes_nothing(epochs: LeaderEpochs) -> None:
    epochs.assign(5, 50)
    epochs.assign(7, 60)
    assert epochs.entries() == [(2, 0), (3, 10), (7, 20)]


@pytest.mark.parametrize(("end", "kept"), [(0, 0), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_epochs_that_begin_at_or_after_the_end_are_forgotten(epochs: LeaderEpochs, end: int, kept: int) -> None:
    epochs.truncate_end(end)
    assert epochs.entries() == [(2, 0), (3, 10), (7, 20)][:kept]
    assert epochs.latest == (-1, 2, 3, 7)[kept]


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, [(2, 0), (3, 10), (7, 20)]),
        (5, [(2, 5), (3, 10), (7, 20)]),
        (10, [(3, 10), (7, 20)]),
        (25, [(7, 25)]),
    ],
)
def test_the_epoch_of_the_log_start_begins_there(
    epochs: LeaderEpochs, tmp_path: Path, start: int, left: list[tuple[int, int]]
) -> None:
    epochs.truncate_start(start)
    assert epochs.entries() == left
    again = LeaderEpochs(tmp_path)
    again.load()
    assert again.entries() == left
