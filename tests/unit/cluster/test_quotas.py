"""Which quota governs a client."""

from pylog.cluster.quotas import DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity, governing, quoted, unquoted

KEY = PRODUCER_BYTE_RATE

# The most specific first, as Kafka's documentation lists them.
PRECEDENCE = [
    (QuotaEntity("u", "c"), QuotaEntity("u", "c")),
    (QuotaEntity("u", DEFAULT), QuotaEntity("u", "c")),
    (QuotaEntity("u", None), QuotaEntity("u", None)),
    (QuotaEntity(DEFAULT, "c"), QuotaEntity("u", "c")),
    (QuotaEntity(DEFAULT, DEFAULT), QuotaEntity("u", "c")),
    (QuotaEntity(DEFAULT, None), QuotaEntity("u", None)),
    (QuotaEntity(None, "c"), QuotaEntity(None, "c")),
    (QuotaEntity(None, DEFAULT), QuotaEntity(None, "c")),
]


def test_the_most_specific_quota_governs_and_says_who_shares_it() -> None:
    for place in range(len(PRECEDENCE)):
        quotas = {named: {KEY: float(rank)} for rank, (named, _) in enumerate(PRECEDENCE) if rank >= place}
        assert governing(quotas, "u", "c", KEY) == (PRECEDENCE[place][1], float(place))


def test_another_kind_of_quota_does_not_hide_a_less_specific_one() -> None:
    quotas = {QuotaEntity("u", "c"): {"request_percentage": 5.0}, QuotaEntity(None, DEFAULT): {KEY: 7.0}}
    assert governing(quotas, "u", "c", KEY) == (QuotaEntity(None, "c"), 7.0)


def test_without_quota_nobody_is_governed() -> None:
    assert governing({}, "u", "c", KEY) is None
    assert governing({QuotaEntity(None, "other"): {KEY: 1.0}}, "u", "c", KEY) is None


def test_nobody_can_call_himself_the_default() -> None:
    assert quoted(DEFAULT) != DEFAULT
    assert unquoted(quoted(DEFAULT)) == DEFAULT
    assert unquoted(quoted(None)) is None
    quotas = {QuotaEntity(None, DEFAULT): {KEY: 1.0}}
    assert governing(quotas, "u", DEFAULT, KEY) == (QuotaEntity(None, quoted(DEFAULT)), 1.0)


def test_names_with_slashes_stay_one_node() -> None:
    assert "/" not in quoted("a/b c")
    assert unquoted(quoted("a/b c")) == "a/b c"
