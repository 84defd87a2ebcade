"""Which replicas a throttle holds for."""

from pylog.replica.throttle import throttled_partitions


def test_a_list_names_replicas_of_brokers() -> None:
    assert throttled_partitions("0:1,1:2,7:1", 1) == {0, 7}
    assert throttled_partitions("", 1) == frozenset()
    assert throttled_partitions("*", 1) is None
