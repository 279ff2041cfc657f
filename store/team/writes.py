"""Changes of users, tokens and browser sessions, with their entries of the audit, each in one transaction.

All of them raise Unavailable.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from store.jobs import requests
from store.store import Store
from store.tables import Job
from store.team import access, audit, logins, preferences, quotas, tokens, users
from store.team.callers import Caller
from store.team.facts import NewLoginCode, OpenedSession, TokenFacts, UserFacts
from torchyard.contract.errors import Conflict, NotAuthorized, NotFound, TooManyRequests
from torchyard.contract.job import JobState
from torchyard.contract.team import Role, Scope

GRACE_OF_DISABLED = timedelta(seconds=30)
"""The longest grace of the jobs that are cancelled with their user."""
_LIVE = tuple(state for state in JobState if not state.terminal)


@dataclass(frozen=True)
class UserChange:
    """What changes of a user. None: unchanged."""

    role: Role | None = None
    disabled: bool | None = None


@dataclass(frozen=True)
class NewToken:
    """A token to make. `lifetime` None: it does not expire."""

    user: str
    name: str
    scopes: frozenset[Scope]
    made_by: str | None
    """The id of the token with which it ends."""
    lifetime: timedelta | None


def add_user(store: Store, name: str, role: Role, *, caller: Caller) -> UserFacts:
    """Adds a user. Raises Conflict."""
    with store.write("team") as session:
        user = users.add(session, name, role)
        audit.add(session, caller, "user.add", f"{name} as {role}")
        return user


def change_user(store: Store, name: str, change: UserChange, *, caller: Caller) -> UserFacts:
    """Changes the role of a user, or disables or enables them. Raises NotFound and Conflict.

    Call `cancel_jobs` afterwards if the jobs of a user who is disabled are to end.
    """
    with store.write("team") as session:
        changed = users.change(session, name, role=change.role, disabled=change.disabled)
        if change.role is not None:
            audit.add(session, caller, "user.role", f"{name} as {change.role}")
        if change.disabled is not None:
            audit.add(session, caller, "user.disable" if change.disabled else "user.enable", name)
    return changed


def cancel_jobs(store: Store, owner: str, *, caller: Caller) -> Iterator[str]:
    """Cancels all jobs of a user, each in its own transaction, and yields the id of each.

    They have `GRACE_OF_DISABLED` at most to stop. Repeat it if it ends early.
    """
    with store.read() as session:
        live = session.scalars(select(Job.id).where(Job.owner == owner, Job.state.in_(_LIVE)).order_by(Job.id)).all()
    for job_id in live:
        with suppress(NotFound, Conflict), store.write("cancel") as session:  # deleted or ended meanwhile
            requests.act(session, "cancel", job_id, caller=caller, grace=GRACE_OF_DISABLED)
        yield job_id


def make_token(store: Store, new: NewToken, *, caller: Caller) -> tuple[TokenFacts, str]:
    """Makes a token, and returns it with its text, which is told this once.

    Raises NotFound, NotAuthorized if the caller's token has ended meanwhile, and Conflict if the user has too many.
    """
    with store.write("team") as session:
        token, text = tokens.make(
            session, new.user, name=new.name, scopes=new.scopes, lifetime=new.lifetime, made_by=new.made_by
        )
        audit.add(session, caller, "token.make", f"{token.id} of {new.user}")
        return token, text


def revoke_token(store: Store, token_id: str, *, user: str | None, caller: Caller) -> None:
    """Revokes a token; with `user`, only one of theirs. Raises NotFound."""
    with store.write("team") as session:
        if tokens.is_revoked(session, token_id):  # nothing changes, and it may be sent without end
            quotas.check_change(session, caller.name)
        owner = tokens.revoke(session, token_id, user=user)
        audit.add(session, caller, "token.revoke", f"{token_id} of {owner}")


def open_session(store: Store, credential: str, *, caller: Caller) -> OpenedSession:
    """Opens a browser session, and returns it with its two secrets."""
    with store.write("team") as session:
        opened = tokens.open_session(session, credential, address=caller.address)
        audit.add(session, caller, "session.open", caller.name)
        return opened


def make_login_code(store: Store, credential: str, *, caller: Caller) -> NewLoginCode:
    """Makes a code that opens one session for the credential."""
    with store.write("team") as session:
        audit.add(session, caller, "session.code", caller.name)
        return logins.make_code(session, credential)


def take_login_code(store: Store, code: str) -> bool:
    """Ends the code. Returns whether it was valid until now: True once, however many take it."""
    with store.write("team") as session:
        return logins.take_code(session, code) is not None


def close_session(store: Store, digest: str, *, caller: Caller) -> None:
    """Ends the browser session whose cookie has this digest. Its streams end, too."""
    with store.write("team") as session:
        tokens.close_session(session, digest)
        access.announce(session, caller.name)
        audit.add(session, caller, "session.close", caller.name)


def keep_preferences(store: Store, document: Mapping[str, Any], *, caller: Caller) -> None:
    """Stores the caller's preferences in place of those before. Not audited: they change nothing for others."""
    with store.write("team") as session:
        preferences.put(session, caller.name, document)


def end_session(store: Store, session_id: str, *, user: str, credential: str | None, caller: Caller) -> None:
    """Ends a browser session of the user. `session_id`: from `store.team.tokens.sessions_of`. Raises NotFound."""
    with store.write("team") as session:
        theirs = tokens.sessions_of(session, user, credential=credential)
        found = next((each for each in theirs if each.id == session_id), None)
        if found is None:
            raise NotFound(f"there is no session {session_id[:100]!r}")
        tokens.close_session(session, found.digest)
        access.announce(session, user)
        audit.add(session, caller, "session.end", f"{session_id} of {user}")


def count_failed_login(store: Store, caller: Caller, address: str, *, most: int, audited: bool) -> None:
    """Counts a failed login of an address, and adds it to the audit if it is to be.

    Raises TooManyRequests, and adds nothing, if the address has had more than `most` in a minute.
    """
    with store.write("team") as session:
        wait_us = logins.count_failed(session, address, most=most)
        if wait_us:
            seconds = -(-wait_us // 1_000_000)
            raise TooManyRequests(
                f"{caller.address} has failed to log in too often; try again in {seconds} s", retry_after=seconds
            )
        if audited:
            audit.add(session, caller, "login", "", outcome=NotAuthorized.code)


def mark_token_used(store: Store, token_id: str) -> None:
    """Stores that the token is used now."""
    with store.write("team") as session:
        tokens.mark_used(session, token_id)


def mark_session_used(store: Store, digest: str, *, address: str) -> None:
    """Stores that the browser session is used now, and from where."""
    with store.write("team") as session:
        tokens.mark_session_used(session, digest, address=address)
