#!/usr/bin/env bash
# journals.sh [SET [HOST...]]: what the hosts said last, for the end of a run that failed.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

name=${1:-main}
shift || true
file="$STATE/hosts.json"
[[ "$name" == main ]] || file="$STATE/$name/hosts.json"
[[ -f "$file" ]] || exit 0
if [[ $# -eq 0 ]]; then mapfile -t hosts < <(jq -r '.hosts | keys[]' "$file"); else hosts=("$@"); fi

for host in "${hosts[@]}"; do
  container=$(jq -r --arg host "$host" '.hosts[$host].container' "$file")
  say "---- $host: failed units and the end of the journal"
  as_root podman exec "$container" sh -c '
    systemctl list-units --failed --plain --no-legend
    journalctl --no-pager --quiet --lines 25 --output short-iso --unit "pylog*" --unit "zookeeper*" 2>/dev/null
    journalctl --no-pager --quiet --lines 10 --output short-iso --priority warning --since -30min' >&2 || say "$host cannot be asked"
done
