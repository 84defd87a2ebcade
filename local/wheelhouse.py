#!/usr/bin/env python3
"""Build the wheelhouse: every Python package that a host installs, as wheels, so that hosts need no package index.

    .local/wheelhouse/*.whl
    .local/wheelhouse/broker.txt    what a broker host installs: name==version --hash=sha256:…, pylog among them
    .local/wheelhouse/spark.txt     the same for the ingestion host
    .local/wheelhouse/release.json  {"version", "pylog_wheel", "sha256": hash of all hashes}

`pip install --no-index --no-deps --find-links DIR --require-hashes -r DIR/broker.txt` is all a host does. The same
sources give the same bytes, so a second build changes nothing on a host.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".local"
WHEELHOUSE = STATE / "wheelhouse"
DOWNLOADS = STATE / "cache" / "wheels"
PIP = STATE / "cache" / "uv-venv" / "bin" / "pip"
UV = STATE / "cache" / "uv-venv" / "bin" / "uv"
SITE = ROOT / ".venv"

KINDS = ("broker", "spark")
HOST_PYTHON = "3.11"
"""Debian 12's own."""

# Published as a source archive only. Building a wheel of it compresses 400 MB of jars for a minute; .venv holds it
# installed from the archive whose hash is locked, and packing those files again uncompressed takes seconds.
REPACKED = ("pyspark",)

BUILD_INPUTS = ("pyproject.toml", "README.md", "LICENSE", "pylog", "pyspark_pylog")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of every file in a wheel we pack: nothing but content may change its hash."""


def locked(kind: str) -> dict[str, str]:
    """Return the locked version of every package of one requirements file, by normalised name."""
    text = (ROOT / "requirements" / f"{kind}.txt").read_text()
    return {normalised(name): version for name, version in re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", text)}


def normalised(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def content_hash(*paths: Path) -> str:
    """Return a hash over names and content of files and trees."""
    digest = hashlib.sha256()
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        for file in files or [path]:
            if file.exists():
                digest.update(f"{file.relative_to(ROOT)}\0{file_hash(file)}\n".encode())
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download() -> None:
    """Fetch every locked wheel for the hosts' Python, checked against the locked hashes; skip when all are there."""
    stamp = DOWNLOADS / "stamp"
    wanted = content_hash(*(ROOT / "requirements" / f"{kind}.txt" for kind in KINDS), Path(__file__))
    if stamp.exists() and stamp.read_text() == wanted:
        return
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        text = (ROOT / "requirements" / f"{kind}.txt").read_text()
        for name in REPACKED:
            text = re.sub(rf"(?m)^{name}==(?:.*\\\n)*.*\n", "", text)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
            requirements.write(text)
            requirements.flush()
            run(
                str(PIP),
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
                "--implementation=cp",
                "--abi=cp311",
                "--abi=abi3",
                "--abi=none",
                f"--python-version={HOST_PYTHON}",
                *platforms(),
                "--dest",
                str(DOWNLOADS),
                "--requirement",
                requirements.name,
            )
    # A file of its own: copies of this directory share its files by hard links, and one must not vouch for another.
    stamp.unlink(missing_ok=True)
    stamp.write_text(wanted)


def platforms() -> list[str]:
    """Return pip's options for what Debian 12's C library can load."""
    machine = platform.machine()
    return [f"--platform=manylinux_2_{minor}_{machine}" for minor in (36, 34, 31, 28, 27, 26, 24)] + [
        f"--platform=manylinux2014_{machine}",
        f"--platform=linux_{machine}",
    ]


def repack(name: str, version: str) -> None:
    """Make a wheel of a package's installed files."""
    target = DOWNLOADS / f"{name}-{version}-py2.py3-none-any.whl"
    if target.exists():
        return
    site = next(SITE.glob("lib/python3.*/site-packages"))
    info = f"{name}-{version}.dist-info"
    part = target.with_suffix(".part")
    rows: list[str] = []
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as wheel:
        for line in sorted((site / info / "RECORD").read_text().splitlines()):
            path = line.rsplit(",", 2)[0].strip('"')
            if "__pycache__" in path or path in {
                f"{info}/{skip}" for skip in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
            }:
                continue
            data, mode = (site / path).read_bytes(), (site / path).stat().st_mode
            # Scripts lie outside of site-packages once installed; in a wheel they have a place of their own.
            member = re.sub(r"^(\.\./)+bin/", f"{name}-{version}.data/scripts/", path)
            entry = zipfile.ZipInfo(member, EPOCH)
            entry.external_attr = (mode & 0xFFFF) << 16
            wheel.writestr(entry, data)
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{member},sha256={digest},{len(data)}\n")
        rows.append(f"{info}/RECORD,,\n")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", EPOCH), "".join(rows))
    part.replace(target)


def build_pylog() -> Path:
    """Build pylog's own wheel from a copy, so that the checkout stays as it is."""
    inputs = [ROOT / name for name in BUILD_INPUTS]
    wanted = content_hash(*inputs)
    directory = STATE / "cache" / "pylog-wheel"
    done = list((directory / wanted).glob("*.whl"))
    if done:
        return done[0]
    shutil.rmtree(directory, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        for source in inputs:
            if source.is_dir():
                shutil.copytree(source, Path(temporary) / source.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, temporary)
        run(
            str(UV),
            "build",
            "--quiet",
            "--wheel",
            "--no-build-isolation",
            "--python",
            str(SITE / "bin" / "python"),
            "--out-dir",
            f"{temporary}/out",
            temporary,
            environment={"SOURCE_DATE_EPOCH": "315532800"},
        )
        (directory / wanted).mkdir(parents=True)
        wheel = next(Path(temporary, "out").glob("*.whl"))
        return Path(shutil.copy(wheel, directory / wanted / wheel.name))


def assemble(pylog_wheel: Path) -> None:
    """Put exactly the wheels of today's locks into the wheelhouse, with their hashes."""
    by_name = {}
    for wheel in DOWNLOADS.glob("*.whl"):
        name, version = wheel.name.split("-")[:2]
        by_name[normalised(name), version] = wheel
    new = STATE / "wheelhouse.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    hashes: dict[str, str] = {}
    for kind in KINDS:
        wheels = [by_name[name, version] for name, version in sorted(locked(kind).items())] + [pylog_wheel]
        lines = []
        for wheel in wheels:
            name, version = wheel.name.split("-")[:2]
            if wheel.name not in hashes:
                hashes[wheel.name] = file_hash(wheel)
                os.link(wheel, new / wheel.name)
            lines.append(f"{normalised(name)}=={version} --hash=sha256:{hashes[wheel.name]}\n")
        (new / f"{kind}.txt").write_text("".join(lines))
    release = {
        "version": pylog_wheel.name.split("-")[1],
        "pylog_wheel": pylog_wheel.name,
        "sha256": hashlib.sha256("".join(sorted(hashes.values())).encode()).hexdigest(),
    }
    (new / "release.json").write_text(json.dumps(release, indent=2) + "\n")
    shutil.rmtree(WHEELHOUSE, ignore_errors=True)
    new.rename(WHEELHOUSE)


def run(*command: str, environment: dict[str, str] | None = None) -> None:
    """Run a program; its output is the operator's to see."""
    subprocess.run(command, check=True, env={**os.environ, **(environment or {})}, stdout=sys.stderr)


def main() -> int:
    """Build what changed since the last time."""
    try:
        download()
        versions = {name: version for kind in KINDS for name, version in locked(kind).items()}
        for name in REPACKED:
            repack(name, versions[name])
        pylog_wheel = build_pylog()
        wanted = f"{pylog_wheel}\n{(DOWNLOADS / 'stamp').read_text()}\n"
        stamp = STATE / "wheelhouse.stamp"
        if not (WHEELHOUSE / "release.json").exists() or not stamp.exists() or stamp.read_text() != wanted:
            assemble(pylog_wheel)
            stamp.write_text(wanted)
    except subprocess.CalledProcessError as error:
        print(f"error: {error.cmd[0]} failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
