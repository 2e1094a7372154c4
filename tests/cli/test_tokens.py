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
    assert (unknown.code, "use read, trigger, operate, admin" in unknown.err) == (2, True)
    assert (await command("token", "revoke", "ann", "--file", file)).code == 2
    assert (await command("token", "create", "a b", "--scope", "read", "--file", file)).code == 2
    assert (await command("token", "create", "ann", "--file", file)).code == 2
    assert not file.exists()


async def test_a_dry_run_makes_no_token(command, tmp_path):
    file = tmp_path / "kept"

    assert (await command("token", "create", "ann", "--scope", "read", "--file", file, "--dry-run")).code == 0
    assert not file.exists()
