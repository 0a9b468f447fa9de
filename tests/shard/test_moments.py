"""Lists of moments as objects."""

import msgspec
import pytest

from strandline.errors import CorruptionError, InvariantError
from strandline.model.digest import Digest
from strandline.shard.moments import decode_moments, encode_moments, moments_key
from strandline.shard.state import Moment

SHARD = "s" + "0" * 32
KEY = moments_key(SHARD, "w" + "1" * 32, "2" * 32)
MOMENTS = tuple(Moment(n * 2, 1000 + n, Digest(n, n, n).pack()) for n in range(1, 50))


def test_moments_come_back_and_add_up():
    chunk, encoded = encode_moments(MOMENTS, shard=SHARD, key=KEY)
    assert decode_moments(encoded, chunk, shard=SHARD) == MOMENTS
    assert (chunk.count, chunk.first_time, chunk.last_time) == (49, 2, 98)
    assert (chunk.first_instant_ms, chunk.last_instant_ms) == (1001, 1049)
    assert chunk.total == Digest(1225, 1225, 1225)
    assert KEY.endswith(".times")


def test_no_moments_are_no_list():
    with pytest.raises(InvariantError):
        encode_moments((), shard=SHARD, key=KEY)


def test_damage_and_mistaken_identity_are_reported():
    chunk, encoded = encode_moments(MOMENTS, shard=SHARD, key=KEY)
    for at in range(0, len(encoded), 11):
        flipped = bytearray(encoded)
        flipped[at] ^= 4
        for damaged in (bytes(flipped), encoded[:at]):
            with pytest.raises(CorruptionError, match=KEY):
                decode_moments(damaged, chunk, shard=SHARD)
    with pytest.raises(CorruptionError, match="not what it should be"):
        decode_moments(encoded, chunk, shard="s" + "9" * 32)
    with pytest.raises(CorruptionError, match="49 times, not 50"):
        decode_moments(encoded, msgspec.structs.replace(chunk, count=50), shard=SHARD)
