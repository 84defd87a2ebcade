"""What stays of a run that found nothing."""

from pathlib import Path

from tests.chaos.run import remove_data


def test_only_the_histories_of_clients_that_gave_something_up_stay(tmp_path: Path) -> None:
    for name in ("disks", "current", "zookeeper-1.data", "history"):
        (tmp_path / name).mkdir()
    (tmp_path / "broker-1.log").write_text("a line\n")
    clean, failed = tmp_path / "history/one.tsv", tmp_path / "history/other.tsv"
    clean.write_text("a\t1\t2\tsteady\t0\tone\t0\t5\n")
    failed.write_text("a\t1\t2\tsteady\t0\tother\t0\t5\nf\t3\t4\tsteady\t0\tother\t1\t_TIMED_OUT\n")
    remove_data(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["broker-1.log", "history", "history/other.tsv"]
