"""Tokens: kept as hashes, with scopes, refused when they are wrong, revoked or tried too often."""

import hmac
import stat

import pytest

import pgqrs
from pgqrs.web import Scope, Tokens
from pgqrs.web.auth import tokens as kept
from pgqrs.web.auth.access import SESSION, Caller
from pgqrs.web.problems import Problem
from rig import http


def test_a_token_is_kept_as_its_hash_for_its_owner_alone(token_file):
    token = kept.create(token_file, "ann", [Scope.READ, Scope.TRIGGER])

    assert token not in token_file.read_text()
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    assert Tokens(token_file).check(token) == Caller("ann", frozenset({Scope.READ, Scope.TRIGGER}))


def test_tokens_are_never_the_same_and_long_enough(token_file):
    made = {kept.create(token_file, f"n{n}", [Scope.READ]) for n in range(50)}

    assert len(made) == 50
    assert all(len(each) > 43 for each in made)


def test_scopes_include_what_they_must_and_no_more(token_file):
    found = {}
    for scope in Scope:
        token = kept.create(token_file, f"n_{scope}", [scope])
        found[scope] = {each.value for each in Tokens(token_file).check(token).scopes}

    assert found == {
        "read": {"read"},
        "trigger": {"trigger"},
        "signal": {"signal"},
        "operate": {"read", "trigger", "signal", "operate"},
        "admin": {"read", "trigger", "signal", "operate", "admin"},
    }


def test_a_file_that_changes_is_read_again(token_file):
    tokens = Tokens(token_file)
    token = kept.create(token_file, "ann", [Scope.READ])
    assert tokens.check(token).name == "ann"
    kept.revoke(token_file, "ann")
    assert tokens.check(token) is None
    token_file.unlink()
    assert tokens.check(token) is None


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a/b", "a" * 65, "\n"])
def test_a_name_that_could_not_stand_in_a_cookie_is_refused(token_file, name):
    with pytest.raises(pgqrs.ConfigError, match="token name"):
        kept.create(token_file, name, [Scope.READ])


def test_a_name_is_used_once_and_revoking_nobody_is_said(token_file):
    kept.create(token_file, "ann", [Scope.READ])
    with pytest.raises(pgqrs.ConfigError, match="there is a token named 'ann'"):
        kept.create(token_file, "ann", [Scope.ADMIN])
    with pytest.raises(pgqrs.ConfigError, match="there are: ann"):
        kept.revoke(token_file, "bob")


def test_a_file_that_others_can_write_is_refused(token_file):
    kept.create(token_file, "ann", [Scope.READ])
    token_file.chmod(0o666)
    with pytest.raises(pgqrs.ConfigError, match="chmod 600"):
        Tokens(token_file)


@pytest.mark.parametrize("line", ["x", "{}", '{"name": "a", "scopes": ["all"], "hash": "", "created_at": ""}', "[]"])
def test_a_broken_line_is_named(token_file, line):
    token_file.write_text(f"{line}\n")
    token_file.chmod(0o600)
    with pytest.raises(pgqrs.ConfigError, match="line 1 is no token"):
        Tokens(token_file)


def test_every_known_token_is_compared_in_constant_time(token_file, monkeypatch):
    tokens = [kept.create(token_file, f"n{n}", [Scope.READ]) for n in range(5)]
    ours = Tokens(token_file)
    compared = []
    monkeypatch.setattr(kept.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)

    for token in (tokens[0], tokens[4], "wrong"):
        compared.clear()
        ours.check(token)
        # As many for the first as for the last and for none.
        assert len(compared) == 5
    assert kept.hmac is hmac


def test_too_many_wrong_ones_and_an_address_has_to_wait_but_not_for_a_right_one(token_file, monkeypatch):
    token = kept.create(token_file, "ann", [Scope.READ])
    tokens = Tokens(token_file)
    for _ in range(kept.MOST_WRONG):
        assert tokens.check("wrong", where="10.0.0.1") is None
    with pytest.raises(Problem) as refused:
        tokens.check("wrong", where="10.0.0.1")
    assert (refused.value.status, 0 < int(refused.value.headers["retry-after"]) <= 61) == (429, True)
    assert tokens.check("wrong", where="10.0.0.2") is None
    assert tokens.check(token, where="10.0.0.1").name == "ann"

    later = kept.time.monotonic() + kept.WRONG_SECONDS + 1
    monkeypatch.setattr(kept.time, "monotonic", lambda: later)
    assert tokens.check("wrong", where="10.0.0.1") is None


def test_a_flood_of_addresses_is_not_remembered_for_ever(token_file, monkeypatch):
    monkeypatch.setattr(kept, "MOST_ADDRESSES", 100)
    tokens = Tokens(token_file)
    for number in range(1_000):
        tokens.check("wrong", where=str(number))

    assert len(tokens._wrong) <= 100


@pytest.mark.backends("sqlite")
async def test_a_browser_that_showed_a_token_is_known_by_its_session(store, token_file, tokens):
    known = Tokens(token_file)
    _, good = known.begin(tokens[Scope.READ])
    wrong = [
        "",
        "x",
        good[:-1],
        good + "x",
        good.swapcase(),
        "ü" + good[1:],
        "x" * 10_000,
        f"a_read.9999999999.{good}",
    ]
    async with http.client(store, tokens=token_file, headers={}) as client:

        async def status(cookie):
            raw = f"{SESSION}={cookie}".encode("latin-1")
            return (await client.get("/api/v1/stats", headers=[(b"cookie", raw)])).status_code

        assert await status(good) == 200
        assert [await status(each) for each in wrong] == [401] * len(wrong)
        kept.revoke(token_file, "a_read")
        assert await status(good) == 401
