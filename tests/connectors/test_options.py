"""Options are read by name."""

import pytest

from strandline.connectors.options import fraction, refuse_unknown, required, whole
from strandline.errors import UsageError


def test_options_are_read_or_their_default_is_taken():
    assert whole({"n": "12"}, "n", 5) == 12
    assert whole({}, "n", 5) == 5
    assert fraction({"f": "0.5"}, "f", 0.1) == 0.5
    assert fraction({}, "f", 0.1) == 0.1
    assert required("x", {"path": "/y"}, "path") == "/y"
    refuse_unknown("x", {"path": "/y", "format": "json"}, ("path",))


@pytest.mark.parametrize("text", ["", "-1", "1.0", "x", "٣", "0"])
def test_a_number_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="option n is"):
        whole({"n": text}, "n", 5, least=1)


@pytest.mark.parametrize("text", ["", "-0.1", "1.1", "x", "nan", "inf"])
def test_a_share_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="option f is"):
        fraction({"f": text}, "f", 0.5)


def test_what_is_missing_or_unknown_is_named():
    with pytest.raises(UsageError, match="x needs the option path"):
        required("x", {"path": ""}, "path")
    with pytest.raises(UsageError, match="no option 'pahts': there are a, path"):
        refuse_unknown("x", {"pahts": "y"}, ("path", "a"))
    with pytest.raises(UsageError, match="option n is None"):
        whole({}, "n", None)
