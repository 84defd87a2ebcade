"""The models of the pages about transactions, and about users and rules: plain data, from facts.

No clock and no socket.
"""

from pylog.client.admin.transactions import OPEN_STATES, OpenTransaction, TransactionView
from pylog.client.admin.users import UserView
from pylog.client.rows import Row, binding_row, open_transaction_row, transaction_row
from pylog.console.readings import Reading
from pylog.console.screens import command, missing, paged
from pylog.security.acl import Binding

MAX_USERS = 500
"""Users that a page lists; it counts them all."""


def transactions(ids: Reading[list[TransactionView]], query: str, page: int, now_ms: int) -> Row:
    """Return one page of the transactional ids that contain *query*, those first whose transaction is open longest.

    Args:
        ids: those that the person may see.
        query: part of the id; empty for all.
        page: from 1.
        now_ms: the time.
    """
    rows = [transaction_row(one, now_ms) for one in ids.value or () if query in one.transactional_id]
    # Open ones first, then by name.
    rows.sort(key=lambda row: (row["state"] not in OPEN_STATES, -(row["open_s"] or 0), row["transactional_id"]))
    open_count = sum(row["state"] in OPEN_STATES for row in rows)
    shown, pages = paged(rows, page)
    return {
        "query": query,
        "total": len(rows),
        "open_count": open_count,
        **pages,
        "transactions": [row | {"is_open": row["state"] in OPEN_STATES} for row in shown],
        "unknown": missing(transactional_ids=ids),
    }


def transaction(view: TransactionView, now_ms: int) -> Row:
    """Return one transactional id with the partitions of its open transaction."""
    row = transaction_row(view, now_ms)
    is_open = view.state in OPEN_STATES
    return row | {
        "is_open": is_open,
        "sentence": _sentence(row, is_open=is_open),
        "partitions": [{"topic": one.topic, "partition": one.partition} for one in sorted(view.partitions)],
        "unknown": [],
    }


def _sentence(row: Row, *, is_open: bool) -> str:
    if not is_open:
        return f"{row['state']}: no transaction is open."
    timeout_s = row["timeout_ms"] / 1000
    if row["state"] != "Ongoing":
        return f"{row['state']}: its end is decided, and is being written to its partitions."
    open_s = row["open_s"] or 0
    left = f"the coordinator aborts it after {timeout_s:,.0f} s"
    return f"Ongoing: open for {open_s:,} s; {left}. Until then, whoever reads committed records waits behind it."


def hanging(found: Reading[list[OpenTransaction]], older_than_s: int, now_ms: int) -> Row:
    """Return what is open in partitions and that no coordinator will end.

    Args:
        found: such transactions, the oldest first.
        older_than_s: for how long their producers had not written.
        now_ms: the time.
    """
    rows = [open_transaction_row(one, now_ms) | {"abort": _abort(one)} for one in found.value or ()]
    if found.value is None:
        sentence = "Whether a transaction hangs is not known."
    elif not rows:
        sentence = "No transaction hangs."
    else:
        hang = "1 transaction hangs" if len(rows) == 1 else f"{len(rows):,} transactions hang"
        sentence = f"{hang}: readers of committed records do not get past the first offset of each."
    return {
        "older_than_s": older_than_s,
        "sentence": sentence,
        "transactions": rows,
        "unknown": missing(hanging_transactions=found),
    }


def _abort(one: OpenTransaction) -> str:
    place = f"{one.partition.topic}:{one.partition.partition}"
    return command("txn", "abort", "--hanging", place, "--start-offset", str(one.start))


def rules(users: Reading[list[UserView]], bindings: Reading[list[Binding]], query: str, page: int) -> Row:
    """Return who may log in, and one page of the rules that say who may do what.

    Args:
        users: who have a SCRAM credential.
        bindings: the ACLs.
        query: part of the principal or of the resource's name; empty for all.
        page: from 1.
    """
    named = [one for one in bindings.value or () if query in one.entry.principal or query in one.pattern.name]
    shown, pages = paged(named, page)
    found = [one for one in users.value or () if query in one.name]
    principals = {one.entry.principal for one in bindings.value or ()}
    return {
        "query": query,
        "total": len(named),
        **pages,
        "users": [
            {
                "user": one.name,
                "mechanisms": sorted(one.iterations),
                "has_rules": f"User:{one.name}" in principals,
            }
            for one in found[:MAX_USERS]
        ],
        "user_count": len(found),
        "rules": [binding_row(one) for one in shown],
        "unknown": missing(users=users, rules=bindings),
    }
