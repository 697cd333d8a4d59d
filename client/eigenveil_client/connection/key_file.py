"""Private keys of a party's own, in a file of its identity's folder, made once and on this machine.

They are no certificate's: they outlive every certificate, because other people have compared their digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity
from eigenveil.numerics.encoding import parse_json
from eigenveil_common.files import check_owner, is_there, read_secret, write_secret
from eigenveil_common.locks import locked


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """The file `name` in the folder of the identity `owner`, which holds the raw private keys called `keys`.

    `lost` is what to do where no copy of it is left: a clause that names a command.
    """

    folder: Path
    name: str
    owner: Identity
    keys: tuple[str, ...]
    lost: str

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def made(self) -> bool:
        """Whether there is anything at its place, also a link that leads nowhere.

        Raises:
            InternalError: code `storage`.
        """
        return self.path.is_symlink() or is_there(self.path)

    def make(self, fresh: Callable[[], Mapping[str, bytes]]) -> None:
        """Write the raw keys that `fresh` draws, durable on return; a file that is there already stays.

        Raises:
            RequestError: code `bad-config`, root works in another user's folder.
            InternalError: code `storage`.
        """
        check_owner(self.folder)
        with locked(self.folder):  # of two commands, one makes them
            if not self.made:
                self._write(fresh())

    def read(self) -> Mapping[str, bytes]:
        """The raw private keys, by name.

        Raises:
            RequestError: code `bad-config`, the file is a link, damaged, another party's, or others can read
                it.
        """
        if self.path.is_symlink():
            raise RequestError(
                Code.BAD_CONFIG,
                f"{self.path} is a link, and a private key lies in its own folder: put the file itself there",
            )
        try:
            stored = parse_json(read_secret(self.path))
            holder = stored["federation"], stored[self._role]
            found = {key: bytes.fromhex(stored[key]) for key in self.keys}
        except (ValueError, KeyError, TypeError) as problem:
            raise self.damaged() from problem
        if holder != (self.owner.federation, self.owner.name):
            raise RequestError(
                Code.BAD_CONFIG,
                f"{self.path} is of {self._role} {holder[1]} in federation {holder[0]}, and this is "
                f"{self.owner.uri}: it was copied, and no two {self._role}s may have the same keys. Move it "
                f"away, then {self.lost}",
            )
        return found

    def damaged(self) -> RequestError:
        """The error of a file that holds no keys."""
        where = f"{self.path} is damaged"
        return RequestError(
            Code.BAD_CONFIG,
            f"{where}: put it back from a copy. If there is none, move it away, then {self.lost}",
        )

    @property
    def _role(self) -> str:
        return self.owner.role.value

    def _write(self, keys: Mapping[str, bytes]) -> None:
        """With whose they are, so that a copied file is known for one."""
        holder = {"federation": self.owner.federation, self._role: self.owner.name}
        written = holder | {key: keys[key].hex() for key in self.keys}
        write_secret(self.path, json.dumps(written, indent=2).encode())
