"""`pgqrs token ...`."""

import pytest

from pgqrs.web import Scope, Tokens

pytestmark = pytest.mark.backends("sqlite")


async def test_a_token_is_shown_once_listed_without_itself_and_revoked(command, tmp_path):
    file = tmp_path / "kept"

    made = await command("token", "create", "ann", "--scope", "read", "--scope", "trigger", "--file", file)
    token = made.out.strip()
    assert Tokens(file).check(token).scopes == {Scope.READ, Scope.TRIGGER}
    [listed] = (await command("token", "list", "--file", file, "-o", "json")).json["items"]
    assert (listed["name"], listed["scopes"]) == ("ann", ["read", "trigger"])
    assert token not in (await command("token", "list", "--file", file)).out
    assert (await command("token", "revoke", "ann", "--file", file)).code == 0
    assert Tokens(file).check(token) is None


async def test_what_cannot_be_meant_is_said(command, tmp_path):
    file = tmp_path / "kept"

    unknown = await command("token", "create", "ann", "--scope", "all", "--file", file)
    assert (unknown.code, "use read, trigger, signal, operate, admin" in unknown.err) == (2, True)
    assert (await command("token", "revoke", "ann", "--file", file)).code == 2
    assert (await command("token", "create", "a b", "--scope", "read", "--file", file)).code == 2
    assert (await command("token", "create", "ann", "--file", file)).code == 2
    assert not file.exists()


async def test_a_dry_run_makes_no_token(command, tmp_path):
    file = tmp_path / "kept"

    assert (await command("token", "create", "ann", "--scope", "read", "--file", file, "--dry-run")).code == 0
    assert not file.exists()


async def test_a_token_that_expires_is_listed_with_its_end(command, tmp_path):
    file = tmp_path / "kept"

    made = await command("token", "create", "ann", "--scope", "read", "--expires", "90d", "--file", file)
    [listed] = (await command("token", "list", "--file", file, "-o", "json")).json["items"]
    assert (made.code, "for 90d" in made.err) == (0, True)
    assert listed["expires_at"][:4] >= listed["created_at"][:4]
    for length in ("soon", "0s", "-1d", "90", "1000y"):
        refused = await command("token", "create", "bob", "--scope", "read", "--expires", length, "--file", file)
        assert (refused.code, "90d" in refused.err or "7d" in refused.err) == (2, True), length


async def test_a_scope_is_added_to_a_token(command, tmp_path):
    file = tmp_path / "kept"
    token = (await command("token", "create", "shop", "--scope", "trigger", "--file", file)).out.strip()

    assert (await command("token", "grant", "shop", "--scope", "signal", "--file", file, "--dry-run")).code == 0
    assert Tokens(file).check(token).scopes == {Scope.TRIGGER}
    granted = await command("token", "grant", "shop", "--scope", "signal", "--file", file)
    assert "shop may trigger, signal" in granted.out + granted.err
    assert Tokens(file).check(token).scopes == {Scope.TRIGGER, Scope.SIGNAL}
    assert (await command("token", "grant", "bob", "--scope", "signal", "--file", file)).code == 2


@pytest.mark.parametrize("verb", ["create", "grant"])
async def test_a_token_without_a_scope_lists_the_scopes(command, tmp_path, verb):
    said = await command("token", verb, "ann", "--file", tmp_path / "kept")

    assert said.code == 2
    for scope in Scope:
        assert scope in said.err
