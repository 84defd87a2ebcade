"""Sessions, tokens of forms, and the limit of logins; time is passed in."""

from pylog.console.sessions import (
    IDLE_S,
    MAX_SESSIONS,
    MAX_SESSIONS_OF_USER,
    SESSION_S,
    Sessions,
)


def begun(sessions: Sessions[str], user: str = "alice", now_s: float = 0) -> str:
    cookie = sessions.begin(user, f"owner of {user}", now_s)
    assert cookie is not None
    return cookie


def test_a_session_is_found_by_its_cookie_alone() -> None:
    sessions: Sessions[str] = Sessions()
    cookie = begun(sessions)
    assert sessions.find(cookie, 1) == "owner of alice"
    assert sessions.find("", 1) is None
    assert sessions.find(cookie.partition(".")[0], 1) is None
    assert sessions.find(cookie[:-1] + ("A" if cookie[-1] != "A" else "B"), 1) is None
    assert sessions.find(sessions.new_cookie(), 1) is None


def test_a_session_ends_when_nobody_uses_it() -> None:
    sessions: Sessions[str] = Sessions()
    cookie = begun(sessions)
    assert sessions.find(cookie, IDLE_S - 1) is not None
    assert sessions.find(cookie, 2 * IDLE_S - 2) is not None
    assert sessions.find(cookie, 3 * IDLE_S) is None


def test_a_session_ends_however_busy_it_is() -> None:
    sessions: Sessions[str] = Sessions()
    cookie = begun(sessions)
    now_s = 0.0
    while (now_s := now_s + IDLE_S / 2) < SESSION_S:
        assert sessions.find(cookie, now_s) is not None
    assert sessions.find(cookie, SESSION_S) is None


def test_a_session_that_was_ended_is_gone() -> None:
    sessions: Sessions[str] = Sessions()
    cookie = begun(sessions)
    sessions.end(cookie)
    assert sessions.find(cookie, 1) is None


def test_a_user_has_few_sessions_and_all_users_together_a_bounded_number() -> None:
    sessions: Sessions[str] = Sessions()
    own = [begun(sessions) for _ in range(MAX_SESSIONS_OF_USER + 1)]
    assert [sessions.find(cookie, 1) is not None for cookie in own] == [False] + [True] * MAX_SESSIONS_OF_USER
    for number in range(MAX_SESSIONS - MAX_SESSIONS_OF_USER):
        begun(sessions, f"user {number}")
    assert sessions.begin("one more", "x", 1) is None
    assert sessions.begin("one more", "x", IDLE_S + 1) is not None


def test_a_form_is_bound_to_the_cookie_and_to_this_process() -> None:
    sessions: Sessions[str] = Sessions()
    other: Sessions[str] = Sessions()
    cookie = sessions.new_cookie()
    assert sessions.is_form_token(cookie, sessions.form_token(cookie))
    assert not sessions.is_form_token(sessions.new_cookie(), sessions.form_token(cookie))
    assert not sessions.is_form_token("made-up", sessions.form_token("made-up"))
    assert not sessions.is_form_token(cookie, "")
    assert not other.is_form_token(cookie, other.form_token(cookie))
