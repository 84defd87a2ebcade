#!/usr/bin/env bash
# Real data through both datacenters, and the proof that none was lost: the last step of `make up`.
#
# The demo's events are produced from this machine to the live datacenter while an online consumer reads along: most as
# JSON, some as Avro under schemas of the registry and stamped for the audit; the hosts' journals are shipped all the
# time. The mirror brings all of it to the offline datacenter, Spark loads it into the lake. Readers that share no code
# with each other count it at each place: the source's own account, kcat at both datacenters, pyarrow; and the audit says
# for each window of time whether everything is everywhere.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

RECORDS="${RECORDS:-1000000}"
AVRO_RECORDS="${AVRO_RECORDS:-60000}"
AVRO_RATE="${AVRO_RATE:-4000}" # so that they fall into several windows
WINDOW_MS=5000                 # as inventories/local has it
DEMO="$STATE/demo"
HOSTS_FILE="$STATE/hosts.json"
ROUNDS=5 # ingestion runs before the count is given up; one is the rule, two when a shipper was behind
LOOKS=12 # at the audit, until it has judged every window

pylog="$VENV/bin/pylog"
# Both read how to log in from files, so that no password is an argument.
if [[ "${SECURITY:-none}" == sasl_ssl ]]; then export PYLOG_CONFIG="$STATE/client.yml" KCAT_CONFIG="$STATE/client.properties"; fi
mapfile -t hosts < <(jq -r '.hosts | keys[]' "$HOSTS_FILE")
address_of() { jq -r --arg host "$1" '.hosts[$host].ip' "$HOSTS_FILE"; }
brokers_of() {
  jq -r --arg name "$1" '[.hosts | to_entries[] | select(.key | startswith($name)) | .value.ip + ":9092"] | join(",")' \
    "$HOSTS_FILE"
}
first_of() {
  local host
  for host in "${hosts[@]}"; do
    if [[ "$host" == "$1"* ]]; then echo "$host" && return; fi
  done
  return 1
}
# The load balancer's address is all that clients on this machine know, and the shippers too.
bootstrap="$(address_of "$(first_of live)"):19092"
mirror=$(brokers_of offline)
mirror_host=$(first_of offline)
ingest_host=$(first_of spark || first_of offline)
scheme=http
if [[ "${SECURITY:-none}" == sasl_ssl ]]; then scheme=https; fi
registry="$scheme://$(address_of "$(first_of live)"):8081"
ssh_key=$(jq -r .ssh_key "$HOSTS_FILE")
known_hosts=$(jq -r .known_hosts "$HOSTS_FILE")
audited=(--topic pageviews.avro --topic searches.avro --topic logins.avro --topic host.metrics.avro)
# A lake that several hosts of Spark share lies where all of them see it.
lake=$([[ "$ingest_host" == spark* ]] && echo /srv/lake || echo /var/lib/pylog/lake)

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
  local run avro
  run=$(date +%s%N | sha256sum | cut -c1-12)
  say "    $RECORDS events as JSON and $AVRO_RECORDS as Avro, run $run"
  "$pylog" demo --bootstrap "$bootstrap" --records "$AVRO_RECORDS" --rate "$AVRO_RATE" --run "${run}a" \
    --schema-registry "$registry" --audit-window-ms "$WINDOW_MS" --partitions 2 --report "$DEMO/${run}a.json" \
    >"$DEMO/avro.log" 2>&1 &
  avro=$!
  "$pylog" demo --bootstrap "$bootstrap" --records "$RECORDS" --run "$run" --report "$DEMO/$run.json" >&2
  wait "$avro" || { cat "$DEMO/avro.log" >&2; die "producing Avro through $registry failed"; }
}

# The online side: somebody reads the same topic while it is written and lands.
follow() {
  # Without the lock of this checkout: interrupted, it may outlive this script, and `make down` must not wait for it.
  { kcat -b "$bootstrap" -C -t pageviews -o end -q -f '.' 2>"$DEMO/online.log" | wc -c >"$DEMO/online.count"; } 9>&-
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
  on_host "$ingest_host" tar -C "$lake" -cf - . | tar -C "$DEMO/lake" -xf -
}

reconcile() {
  local arguments=(--bootstrap "$bootstrap" --mirror "$mirror" --lake "$DEMO/lake") file host
  for file in "$DEMO"/*.json; do
    case "$(basename "$file")" in
      journal-* | audit.json) ;; # no counts of a source
      *) arguments+=(--report "$(basename "$file" .json)=$file") ;;
    esac
  done
  for host in "${hosts[@]}"; do arguments+=(--journal "$host=$DEMO/journal-$host.json"); done
  "$VENV/bin/python" -m local.demo.reconcile "${arguments[@]}"
}

run_unit() {
  on_host "$ingest_host" systemctl start "$1" ||
    { on_host "$ingest_host" journalctl -u "$1" -n 40 --no-pager >&2; die "$1 failed on $ingest_host"; }
}

# Since this run began: what an earlier one left without its end stays unknown for ever.
report() {
  "$pylog" audit report --ledger "$bootstrap" --ledger "$mirror" --since "$(($(date +%s) - began))s" \
    --window-ms "$WINDOW_MS" "${audited[@]}" "$@"
}

# A window is judged once every tier has everything of it, which takes a little longer than the window.
audit() {
  local look
  for ((look = 1; look <= LOOKS; look++)); do
    run_unit pylog-audit-lake.service
    report --picture "$DEMO/completeness" --format json >"$DEMO/audit.json" || break # it has said what is missing
    if jq -e '[.topics[][].pending[]] | length == 0' "$DEMO/audit.json" >/dev/null; then return; fi
    sleep 2
  done
  report --format wide || true
  die "the audit does not find everything everywhere"
}

mkdir -p "$DEMO"
"$pylog" topic create pageviews --partitions 4 --if-not-exists --bootstrap "$bootstrap" >"$DEMO/topic.log"
follow &
follower=$!
trap 'kill "$follower" 2>/dev/null || true' EXIT
began=$(date +%s)
produce
list_journals
for ((round = 1; ; round++)); do
  say "    the mirror brings what is there by now to the offline datacenter"
  on_host "$mirror_host" pylog mirror status --config /etc/pylog/mirror.yml --wait 120 >"$DEMO/mirror.txt" ||
    { on_host "$mirror_host" journalctl -u pylog-mirror -n 40 --no-pager >&2; die "the mirror did not get there"; }
  say "    ingestion run $round: Spark loads all topics into Parquet on $ingest_host"
  run_unit pylog-ingest.service
  fetch_lake
  if reconcile >"$DEMO/table.txt"; then break; fi
  if ((round == ROUNDS)); then
    cat "$DEMO/table.txt"
    die "produced, stored, mirrored and landed differ after $ROUNDS ingestion runs; the lake as it was read: .local/demo/lake"
  fi
done
pkill -P "$follower" kcat 2>/dev/null || true
wait "$follower" 2>/dev/null || true
say "    the audit compares producers, live, mirror and lake, window by window"
audit
cat "$DEMO/table.txt"
printf 'Meanwhile an online consumer read %s of the page views as they came.\n' "$(cat "$DEMO/online.count" 2>/dev/null || echo 0)"
printf '\nAudited records by tier (windows of %s s)\n' "$((WINDOW_MS / 1000))"
report
printf 'How complete each window is at each tier, drawn:\n'
printf '  %s\n' "$DEMO"/completeness/*.svg
