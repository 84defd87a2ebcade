#!/usr/bin/env bash
# Real data through the whole house, and the proof that none was lost: the last step of `make up`.
#
# The demo's events are produced from this machine while an online consumer reads along; the hosts' journals are
# shipped all the time. Then each journal is listed up to now, the ingestion job runs until all of it has landed, and
# three readers that share no code with each other count: the source's own account, kcat, pyarrow.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

RECORDS="${RECORDS:-1000000}"
DEMO="$STATE/demo"
HOSTS_FILE="$STATE/hosts.json"
INGEST_HOST="${INGEST_HOST:-offline1}"
ROUNDS=5 # ingestion runs before the count is given up; one is the rule, two when a shipper was behind
TOPICS=(pageviews searches logins host.metrics)
pylog="$VENV/bin/pylog"

mapfile -t hosts < <(jq -r '.hosts | keys[]' "$HOSTS_FILE")
address_of() { jq -r --arg host "$1" '.hosts[$host].ip' "$HOSTS_FILE"; }
bootstrap=$(jq -r '[.hosts | to_entries[] | select(.key | startswith("live")) | .value.ip + ":9092"] | join(",")' "$HOSTS_FILE")
ssh_key=$(jq -r .ssh_key "$HOSTS_FILE")
known_hosts=$(jq -r .known_hosts "$HOSTS_FILE")

on_host() {
  local host=$1
  shift
  # shellcheck disable=SC2029  # the command is meant to be put together here
  ssh -n -i "$ssh_key" -o UserKnownHostsFile="$known_hosts" -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes \
    -o LogLevel=ERROR "root@$(address_of "$host")" "$@"
}

# A run keeps its name until its report is there: a run that was interrupted is begun anew under another name, and
# what it left behind is told apart by the name at the start of every key.
produce() {
  local run
  run=$(date +%s%N | sha256sum | cut -c1-12)
  say "    $RECORDS events, run $run"
  "$pylog" demo --bootstrap "$bootstrap" --records "$RECORDS" --run "$run" --report "$DEMO/$run.json" >&2
}

# The online side: somebody reads the same topic while it is written and lands.
follow() {
  kcat -b "$bootstrap" -C -t pageviews -o end -q -f '.' 2>"$DEMO/online.log" | wc -c >"$DEMO/online.count"
}

list_journals() {
  local host
  for host in "${hosts[@]}"; do
    on_host "$host" journalctl -o json --output-fields=__CURSOR --no-pager >"$DEMO/journal-$host.json"
  done
}

fetch_lake() {
  rm -rf "$DEMO/lake"
  mkdir -p "$DEMO/lake"
  on_host "$INGEST_HOST" tar -C /var/lib/pylog/lake -cf - . | tar -C "$DEMO/lake" -xf -
}

reconcile() {
  local arguments=(--bootstrap "$bootstrap" --lake "$DEMO/lake") file host
  for file in "$DEMO"/*.json; do
    case "$(basename "$file")" in
      journal-*) ;;
      *) arguments+=(--report "$(basename "$file" .json)=$file") ;;
    esac
  done
  for host in "${hosts[@]}"; do arguments+=(--journal "$host=$DEMO/journal-$host.json"); done
  "$VENV/bin/python" -m pylog.ingest.reconcile "${arguments[@]}"
}

mkdir -p "$DEMO"
follow &
follower=$!
trap 'kill "$follower" 2>/dev/null || true' EXIT
produce
list_journals
for ((round = 1; ; round++)); do
  say "    ingestion run $round: Spark loads ${TOPICS[*]} and host.journal into Parquet on $INGEST_HOST"
  on_host "$INGEST_HOST" systemctl start pylog-ingest.service ||
    { on_host "$INGEST_HOST" journalctl -u pylog-ingest.service -n 40 --no-pager >&2; die "the ingestion job failed"; }
  fetch_lake
  if reconcile >"$DEMO/table.txt"; then break; fi
  if ((round == ROUNDS)); then
    cat "$DEMO/table.txt"
    die "produced, stored and landed differ after $ROUNDS ingestion runs; the lake as it was read: .local/demo/lake"
  fi
done
pkill -P "$follower" kcat 2>/dev/null || true
wait "$follower" 2>/dev/null || true
cat "$DEMO/table.txt"
printf 'Meanwhile an online consumer read %s of the page views as they came.\n' "$(cat "$DEMO/online.count" 2>/dev/null || echo 0)"
