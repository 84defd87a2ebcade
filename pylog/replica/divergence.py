"""Where two logs part: what the leader answers, and where the follower then cuts.

`diverging_epoch` and `is_unproven` run on the leader, `truncation_offset` on the follower.

They never compare by the high watermark, which lags behind the leader's and may be below what was acknowledged, but by
leader epochs: two logs that agree on an epoch agree on everything before its end.

Source: KIP-101, KIP-279, KIP-595 (diverging epochs in Fetch).
"""

from pylog.model import Offset


def diverging_epoch(
    last_fetched_epoch: int, fetch_offset: Offset, leaders_epoch: int, leaders_end: Offset
) -> tuple[int, Offset] | None:
    """Return what the leader answers when a follower's log is not a prefix of its own, else None.

    Args:
        last_fetched_epoch: leader epoch of the follower's last record, -1 with an empty log.
        fetch_offset: the follower's log end.
        leaders_epoch: the largest epoch not above *last_fetched_epoch* that the leader's log has.
        leaders_end: where that epoch ends in the leader's log.
    """
    if last_fetched_epoch < 0:
        return None
    if leaders_epoch < last_fetched_epoch or leaders_end < fetch_offset:
        return leaders_epoch, leaders_end
    return None


def is_unproven(
    last_fetched_epoch: int, fetch_offset: Offset, followers_start: Offset, oldest_epoch: int, leaders_start: Offset
) -> bool:
    """Return whether a follower has records, and nothing shows that they are the leader's.

    They all lie below the start of the leader's log, which has forgotten their epochs.  The last of them may be of a
    leader that was deposed before anybody copied them, so the follower must begin anew.  To let it keep them until it
    hears of the leader's start is not enough: it would also keep what idempotent producers sent it, and acknowledge as
    a duplicate what its leader never had.

    Args:
        last_fetched_epoch: leader epoch of the follower's last record, -1 with an empty log.
        fetch_offset: the follower's log end.
        followers_start: where the follower's log begins.
        oldest_epoch: the oldest leader epoch that the leader's log knows.
        leaders_start: where the leader's log begins.
    """
    return 0 <= last_fetched_epoch < oldest_epoch and followers_start < fetch_offset <= leaders_start


def truncation_offset(
    leaders_epoch: int, leaders_end: Offset, own_epoch: int, own_end: Offset, log_end_offset: Offset
) -> Offset:
    """Return the offset from which on the follower's records are not the leader's.

    Args:
        leaders_epoch: as the leader answered, see `diverging_epoch`.
        leaders_end: likewise.
        own_epoch: the largest epoch not above *leaders_epoch* that the follower's log has, -1 if none.
        own_end: where that epoch ends in the follower's log; its log start if there is none, since then every record
            is of an epoch that the leader does not have.
        log_end_offset: the follower's.
    """
    if own_epoch < leaders_epoch or leaders_epoch < 0:
        # We lack the epoch the leader named; cut after our own one before it, then it is compared again (KIP-279).
        return min(own_end, log_end_offset)
    return min(own_end, leaders_end, log_end_offset)
