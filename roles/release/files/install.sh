#!/bin/sh
# Installs one environment from its archive of wheels, offline and by hash; the archive goes with the installation.
#   install.sh ARCHIVE TARGET BASE --compile|--no-compile
# BASE is the environment with other people's packages, and TARGET itself where those are what is installed.
set -eu
archive=$1 target=$2 base=$3 compile=$4
work=$(mktemp -d /opt/pylog/install.XXXXXX)
trap 'rm -rf "$work" "$archive"' EXIT
tar -xf "$archive" -C "$work"
rm -rf "$target"
python3 -m venv --without-pip "$target"
# Unpacked: from inside its wheel, pip would be compiled anew at every start, which takes longer than its work.
[ -d "$base/pip" ] || python3 -m zipfile -e /usr/share/python-wheels/pip-*.whl "$base/pip"
PYTHONPATH="$base/pip" "$target/bin/python" -m pip install \
  --quiet --disable-pip-version-check --no-input --no-cache-dir --root-user-action ignore "$compile" \
  --no-index --no-deps --find-links "$work" --require-hashes -r "$work/requirements.lock"
if [ "$target" != "$base" ]; then
  echo "$base"/lib/python3.*/site-packages > "$(echo "$target"/lib/python3.*/site-packages)/base.pth"
fi
# The lock moves in last: a directory without it is an installation that was interrupted and begins again.
mv "$work/requirements.lock" "$target/requirements.lock"
