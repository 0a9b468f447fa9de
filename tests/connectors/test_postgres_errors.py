"""What passes is tried again, what stays stops the sink (S89)."""

from __future__ import annotations

import pytest

from strandline.connectors.postgres_errors import passes, trouble
from strandline.errors import SinkError, SinkStoppedError

LOGIN = 'connection to server at "h", port 5432 failed: FATAL:  '


PASSING = (
    *("08006", "0A000", "25006", "25P03", "40001", "40P01", "53100", "53300"),
    *("55P03", "57014", "57P01", "57P03", "58030", "XX000"),
)
STAYING = ("22021", "23502", "23505", "28000", "28P01", "3D000", "3F000", "42501", "42P01", "XX001")


@pytest.mark.parametrize("code", PASSING)
def test_s89_codes_that_pass(code: str) -> None:
    assert passes(code, "")


@pytest.mark.parametrize("code", STAYING)
def test_s89_codes_that_stay(code: str) -> None:
    assert not passes(code, "")


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ("connection refused", True),
        (f"{LOGIN}the database system is starting up", True),
        (f"{LOGIN}the database system is in recovery mode", True),
        (f"{LOGIN}sorry, too many clients already", True),
        (f'{LOGIN}too many connections for role "x"', True),
        (f"{LOGIN}remaining connection slots are reserved for roles with", True),
        ("server closed the connection unexpectedly", True),
        (f"{LOGIN}Passwort-Authentifizierung fehlgeschlagen", True),
        (f'{LOGIN}password authentication failed for user "x"', False),
        (f'{LOGIN}database "nowhere" does not exist', False),
        (f'{LOGIN}role "nobody" does not exist', False),
        (f'{LOGIN}no pg_hba.conf entry for host "h", user "x"', False),
        ("fe_sendauth: no password supplied", False),
        (f'{LOGIN}permission denied for database "d"', False),
    ],
)
def test_s89_a_login_is_told_by_its_text(text: str, *, passing: bool) -> None:
    assert passes(None, text) is passing
    found = trouble(None, text, "PostgreSQL at 'h'")
    assert isinstance(found, SinkError)
    assert isinstance(found, SinkStoppedError) is not passing
    assert "PostgreSQL at 'h'" in str(found)
