#!/usr/bin/env bash
# The release before this one, built from its own sources into .local/previous: the last release tag, and before the
# first tag the commit in molecule/previous_release. Upgrades are tested from it, and back to it.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

commit=$(git describe --tags --abbrev=0 2>/dev/null || cat molecule/previous_release)
directory="$STATE/previous/source"
if [[ "$(cat "$STATE/previous/commit" 2>/dev/null)" != "$commit" ]]; then
  rm -rf "$STATE/previous"
  mkdir -p "$directory"
  git archive "$commit" | tar --extract --directory "$directory"
  mkdir -p "$directory/.local/cache"
  # What it builds with is this checkout's; what it downloads is its own, and begins with what is here.
  ln -s "$VENV" "$directory/.venv"
  ln -s "$CACHE/uv-venv" "$directory/.local/cache/uv-venv"
  cp --archive --link "$CACHE/wheels" "$directory/.local/cache/wheels"
  "$VENV/bin/python" "$directory/local/wheelhouse.py"
  printf '{"pylog_wheelhouse": "%s"}\n' "$directory/.local/wheelhouse" >"$STATE/previous/vars.json"
  echo "$commit" >"$STATE/previous/commit"
fi
say "previous release: $commit"
