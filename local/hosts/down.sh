#!/usr/bin/env bash
# down.sh             removes the hosts of `make up`, Molecule and `make baremetal` with their data, and the package cache's
#                     process; sets that somebody made by another name stay, and so do caches
# down.sh distclean   removes everything this checkout made
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"
lock_checkout
PYTHON3="${PYTHON3:-/usr/bin/python3}"

verb=${1:-down}

remove_sets() {
  local file name
  for file in "$STATE"/*/hosts.json "$STATE/hosts.json"; do
    [[ -f "$file" ]] || continue
    name=main
    [[ "$file" == "$STATE/hosts.json" ]] || name=$(basename "$(dirname "$file")")
    case "$verb/$name" in
      */machines) "$PYTHON3" -m local.hosts.machines destroy ;;
      distclean/* | down/main | down/molecule-*) "$PYTHON3" -m local.hosts --set "$name" destroy ;;
      *) say "left alone: set $name (python3 -m local.hosts --set $name destroy)" ;;
    esac
  done
}

# What lost its state file still carries this checkout's label.
remove_strays() {
  local -a strays networks
  mapfile -t strays < <(as_root podman ps --all --quiet --filter "label=pylog.checkout=$ROOT")
  [[ ${#strays[@]} -eq 0 ]] || as_root podman rm --force --time 0 "${strays[@]}" >/dev/null
  mapfile -t networks < <(as_root podman network ls --quiet --filter "label=pylog.checkout=$ROOT")
  [[ ${#networks[@]} -eq 0 ]] || as_root podman network rm "${networks[@]}" >/dev/null
}

# A machine on which nothing was ever installed has nothing to take down but files.
if command -v podman >/dev/null && [[ -x "$PYTHON3" ]]; then
  remove_sets
  if ! compgen -G "$STATE/*/hosts.json" >/dev/null; then
    remove_strays
    "$PYTHON3" local/hosts/apt_cache.py stop
  fi
fi

# What was counted is gone with the hosts; a count that stayed would be missed at the next one. So is how they were secured.
rm -rf "$STATE/demo" "$STATE/security" "$STATE/client.yml" "$STATE"/client*.properties

if [[ "$verb" == distclean ]]; then
  # Another checkout may have hosts of the same image; podman refuses to remove it then, and it stays for them.
  local/hosts/image.sh rm
  as_root rm -rf "$STATE" "$VENV"
  rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis ./*.egg-info
  find . -name __pycache__ -type d -prune -exec rm -rf {} +
  say "removed all that this checkout made; Debian packages stay installed"
else
  say "kept for the next \`make up\`: $(du -sh "$CACHE" | cut -f 1) of caches in .local/cache, the wheelhouse and" \
    "the base image; \`make distclean\` removes them too"
fi
