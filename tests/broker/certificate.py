"""A certificate of the tests' own, by the tool that comes with Java."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.server_process import LOOPBACK, ServerError, run

from strandline.spark.java import find_java

STORE_PASSWORD = "tide-and-keys"
_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a server shows, and what a client has to trust to believe it."""

    keys: Path
    """A PKCS 12 store with the private key, locked with `STORE_PASSWORD`."""
    trusted: Path
    """The certificate alone, as PEM."""


def make(folder: Path, host: str = LOOPBACK) -> Certificate:
    """One that signs itself, for this address, good for two days."""
    folder.mkdir()
    made = Certificate(folder / "keys.p12", folder / "trusted.pem")
    store = ["-keystore", str(made.keys), "-storepass", STORE_PASSWORD, "-alias", "server"]
    kind = ["-storetype", "PKCS12", "-keyalg", "EC", "-validity", "2"]
    name = ["-dname", f"CN={host}", "-ext", f"san=ip:{host}"]
    run([_keytool(), "-genkeypair", *store, *kind, *name], folder, "making keys", _PATIENCE_S)
    shown = ["-exportcert", "-rfc", *store, "-file", str(made.trusted)]
    run([_keytool(), *shown], folder, "showing a certificate", _PATIENCE_S)
    return made


def _keytool() -> str:
    program = find_java().program
    if program is None:
        raise ServerError("no Java")
    return str(Path(program).resolve().with_name("keytool"))
