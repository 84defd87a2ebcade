#!/bin/sh
# Unpacks worker and plugins from their archive; the archive goes with it.
#   install.sh ARCHIVE TARGET
set -eu
archive=$1 target=$2
work=$(mktemp -d /opt/pylog/connect/.install.XXXXXX)
trap 'rm -rf "$work" "$archive"' EXIT
mkdir "$work/plugins"
tar -xf "$archive" -C "$work" worker
tar -xf "$archive" -C "$work/plugins" --anchored --exclude=worker
chmod -R u=rwX,go=rX "$work"
# As a whole: a directory of this name is complete.
mv -T "$work" "$target"
