"""What Prometheus measured, in words and numbers; and its answers as it gives them."""

import math
from collections.abc import Sequence

import pytest

from pylog.console.alerts import BadAnswer, read_samples
from pylog.console.measures import QUERIES, Sample, health, latency, of_datacenter, streams
from pylog.console.readings import Reading
from pylog.errors import Unreachable
from tests.programs.program import json_server

NOW_S = 1_000.0
LAST = "pylog_canary_last_success_timestamp_seconds"


def sample(name: str, value: float, **labels: str) -> Sample:
    return Sample({"__name__": name, **labels}, value, NOW_S)


def reading(*samples: Sample) -> Reading[Sequence[Sample]]:
    return Reading(list(samples), 1, "", None, 1)


def test_the_canary_is_well_through_the_brokers_that_it_measures() -> None:
    found = health(reading(sample(LAST, 995.0, broker="1"), sample(LAST, 990.0, broker="2")), [1, 2, 3])
    assert (found["verdict"], found["canary"]) == (
        "healthy",
        [{"broker": 1, "behind_s": 5.0}, {"broker": 2, "behind_s": 10.0}],
    )
    assert found["sentence"].startswith(
        "The canary wrote and read back a record through 2 of 3 brokers within the last 10 s. It measures 1 of"
    )


def test_a_broker_through_which_nothing_is_read_back_is_named() -> None:
    found = health(reading(sample(LAST, 995.0, broker="1"), sample(LAST, 900.0, broker="2")), [1, 2])
    assert found["verdict"] == "unhealthy"
    assert found["sentence"].startswith("The canary has read back no record through broker 2 for 100 s.")


def test_of_several_probes_the_one_that_read_last_counts_and_other_clusters_do_not() -> None:
    found = health(
        reading(
            sample(LAST, 100.0, broker="1", host="a"), sample(LAST, 999.0, broker="1"), sample(LAST, 1.0, broker="9")
        ),
        [1],
    )
    assert (found["verdict"], found["canary"]) == ("healthy", [{"broker": 1, "behind_s": 1.0}])


def test_partitions_that_refuse_acks_all_are_no_healthy_cluster() -> None:
    under, at = "pylog_partitions_under_min_isr", "pylog_partitions_at_min_isr"
    canary = sample(LAST, 999.0, broker="1")
    found = health(reading(canary, sample(under, 2.0, broker="1"), sample(under, 5.0, broker="8")), [1])
    assert (found["verdict"], found["under_min_isr"], found["at_min_isr"]) == ("unhealthy", 2, None)
    assert "2 partitions have fewer replicas in sync than min.insync.replicas" in found["sentence"]
    found = health(reading(canary, sample(under, 0.0, broker="1"), sample(at, 1.0, broker="1")), [1])
    assert found["verdict"] == "healthy"
    assert found["sentence"].endswith("1 partition has just as many: one more that fails stops acks=all.")


def test_nobody_who_measures_is_no_good_news() -> None:
    nothing: Reading[Sequence[Sample]] = Reading()
    assert health(None, [1])["verdict"] == "unknown"
    assert health(reading(), [1])["verdict"] == "unknown"
    away = health(nothing.failed("Prometheus does not answer", 5), [1])
    assert (away["verdict"], away["unknown"][0]["since_ms"]) == ("unknown", 5)
    assert away["sentence"].startswith("Unknown: Prometheus does not answer.")
    before = reading(sample(LAST, 999.0, broker="1")).failed("no answer", 5)
    assert health(before, [1])["verdict"] == "unknown"


def test_latency_is_shown_by_request_and_broker() -> None:
    found = latency(
        reading(
            Sample({"api": "produce", "broker": "1"}, 0.012_34, NOW_S),
            Sample({"api": "produce", "broker": "2"}, math.nan, NOW_S),
            Sample({"api": "fetch", "broker": "7"}, 1.0, NOW_S),
        ),
        [2, 1],
    )
    assert (found["brokers"], found["apis"]) == ([1, 2], [{"api": "produce", "p99_ms": [12.3, None]}])
    assert not latency(None, [1])["is_measured"]


def test_a_query_that_stopped_is_named() -> None:
    def query(name: str, seen_s: float) -> list[Sample]:
        return [
            sample("pylog_stream_seen_timestamp_seconds", seen_s, query=name),
            sample("pylog_stream_read_records_total", 7.0, query=name),
        ]

    found = streams(reading(*query("clicks", 990.0), *query("old", 500.0)))
    assert (found["verdict"], found["sentence"]) == ("warn", "1 of 2 queries were not seen running: old first.")
    assert [(row["query"], row["seen_s"], row["read_records"]) for row in found["queries"]] == [
        ("clicks", 10.0, 7.0),
        ("old", 500.0, 7.0),
    ]
    assert streams(reading(*query("clicks", 990.0)))["verdict"] == "healthy"
    assert streams(reading())["verdict"] == "unknown"
    assert streams(None)["verdict"] == "unknown"


def test_only_the_own_datacenter_is_shown_where_samples_name_one() -> None:
    samples = [sample("x", 1, datacenter="live"), sample("x", 2, datacenter="offline"), sample("x", 3)]
    assert [one.value for one in of_datacenter(samples, "live")] == [1, 3]
    assert of_datacenter(samples, "") == samples


def test_answers_of_prometheus_are_read() -> None:
    result = [
        {"metric": {"__name__": LAST, "broker": "1"}, "value": [1000.5, "999"]},
        {"metric": {}, "value": [1, "NaN"]},
    ]
    with json_server(
        {"/api/v1/query": {"status": "success", "data": {"resultType": "vector", "result": result}}}
    ) as url:
        first, second = read_samples(url, QUERIES["health"], 5.0)
        assert (first.labels["broker"], first.value, first.at_s) == ("1", 999.0, 1000.5)
        assert math.isnan(second.value)
    broken = {"/api/v1/query": {"data": {"result": [{"metric": {}, "value": [1]}]}}}
    with json_server(broken) as url, pytest.raises(BadAnswer, match="cannot be read"):
        read_samples(url, "x", 5.0)
    with pytest.raises(Unreachable, match="does not answer"):
        read_samples("http://127.0.0.1:1", "x", 5.0)
