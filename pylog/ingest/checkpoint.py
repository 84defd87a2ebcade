"""What the driver remembers outside the lake: which lake it loads, and how far that was.

The lake's own commits say where to go on.  This directory only bears witness: a lake that is not mounted, was set back
or is another one would otherwise be loaded from the beginning, and nobody would notice.

checkpoint => lake.json: {"kind": "pylog lake checkpoint", "version": 1, "lake": id of the lake, "commit": number}
"""

import json
from pathlib import Path

from pylog.errors import StorageError
from pylog.ingest.lake import Lake, LakeError, State
from pylog.ingest.status import replace_text

KIND = "pylog lake checkpoint"
VERSION = 1


class Checkpoint:
    """One driver's memory of one lake."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "lake.json"

    def check(self, lake: Lake, state: State) -> None:
        """Refuse a lake that is not the one of the last run, or holds less than then.

        Raises:
            LakeError: the message says which of them, and how to go on.
            StorageError: the checkpoint cannot be read.
        """
        try:
            body = json.loads(self._path.read_text())
        except FileNotFoundError:
            self._refuse_others()
            return  # a driver that is new here, or on a new host, goes on where the lake is
        except (OSError, ValueError) as error:
            raise StorageError(f"checkpoint {self._path} cannot be read: {error}") from error
        if (body.get("kind"), body.get("version")) != (KIND, VERSION):
            raise LakeError(
                f"{self._path} is {body.get('kind')!r} of version {body.get('version')!r}; this release knows "
                f"{KIND!r} of version {VERSION}: name a new directory"
            )
        if body["lake"] != lake.id():
            raise LakeError(
                f"checkpoint {self._directory} belongs to another lake than {lake.root}: is the right file system "
                "mounted there? To load another lake, name another checkpoint"
            )
        if body["commit"] > state.number:
            raise LakeError(
                f"lake {lake.root} ends at commit {state.number}, and commit {body['commit']} was there before: "
                f"restore what is missing, or delete {self._path} to load again what the topics still hold"
            )

    def remember(self, lake: Lake, state: State) -> None:
        """Write down how far the lake is.

        Raises:
            StorageError: the directory cannot be written.
        """
        body = {"kind": KIND, "version": VERSION, "lake": lake.id(), "commit": state.number}
        # On disk before the old one goes: an empty file after a power cut would refuse every start.
        replace_text(self._path, json.dumps(body))

    def _refuse_others(self) -> None:
        strange = next((name for name in ("metadata", "offsets", "commits") if (self._directory / name).exists()), None)
        if strange is not None:
            raise LakeError(
                f"{self._directory} holds {strange}: it is the checkpoint of a Spark stream or of an earlier kind of "
                "job; name a new directory and an empty lake"
            )
