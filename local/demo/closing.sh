#!/usr/bin/env bash
# closing.sh SECONDS: the last screen of `make up`: what runs, where to look, what to try next.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

hosts="$STATE/hosts.json"
prometheus=$(jq -r '.hosts.live2.ip // empty' "$hosts")
first=$(jq -r '[.hosts | to_entries[] | select(.key | startswith("live"))][0].value.ip' "$hosts")
# The console comes first. Without logins the deployed one listens on its host's loopback alone; one of this machine shows the same.
echo
if [[ "${SECURITY:-none}" == none ]]; then
  registry="curl http://$first:8081/subjects                     the schema registry"
  watch="http://$prometheus:9090/alerts           Prometheus, and what it watches for"
  cat <<END
The cluster in a browser: http://127.0.0.1:8085/ once this runs
  .venv/bin/pylog console --payloads --bootstrap $first:9092
END
else
  registry="curl --cacert .local/ca/ca.pem -u \"demo:\$(cat .local/users/demo.password)\" https://$first:8081/subjects      the schema registry"
  watch='make shell HOST=live2                    Prometheus answers that host alone: curl 127.0.0.1:9090/api/v1/alerts'
  cat <<END
The cluster in a browser: https://$prometheus:8085/
  log in as demo, with the password in .local/users/demo.password; the page's authority is .local/ca/ca.pem
END
fi
echo '  what to look at: docs/tutorial.md, section "The cluster in a browser"'
echo
awk -F '\t' '{ printf "  %-22s %6s s\n", $1, $2 }' "$STATE/up-stages.tsv"
printf '  %-22s %6s s\n\n' 'all of it' "${1:-?}"
echo 'Running'
jq -r '(.hosts | keys | map(select(startswith("spark"))) | length) as $spark | .hosts | to_entries[] |
  "  \(.key)\t\(.value.ip)\t" +
  (if .key == "live1" then "ZooKeeper :2181, broker :9092, schema registry :8081, audit"
   elif .key == "offline1" then "ZooKeeper :2181, broker :9092, mirror, audit" + (if $spark == 0 then ", Spark" else "" end)
   elif .key | startswith("live") then "ZooKeeper :2181, broker :9092"
   elif .key | startswith("spark") then "Spark"
   else "broker :9092" end)' "$hosts" | column -t -s $'\t'
if [[ "${SECURITY:-none}" != none ]]; then
  brokers=$(sed -n 's/^bootstrap.servers=//p' "$STATE/client.properties")
  cat <<END

How to log in
  brokers     $brokers
  protocol    SASL_SSL, mechanism SCRAM-SHA-512
  user        demo, who may do everything with topics, groups and transactions
  password    in .local/users/demo.password
  authority   .local/ca/ca.pem
  these as properties: .local/client.properties (librdkafka, kcat), .local/client.java.properties (Java)

  kcat -F .local/client.properties -C -t host.journal -o -5 -e
  export PYLOG_CONFIG=$STATE/client.yml        # for every pylog command in this shell
END
  kcat="kcat -F .local/client.properties"
else
  kcat="kcat -b $first:19092"
fi
cat <<END

Where to look
  make status                              units, ports and disks of every host
  make logs HOST=live1 UNIT=pylog-broker@1 a broker's journal (FOLLOW=1 goes on)
  make shell HOST=live1                    a root shell
  $watch

What to try next, from this machine
  .venv/bin/pylog topic list --bootstrap $first:9092
  $kcat -C -t host.journal -o -5 -e      any Kafka client works
  $registry
  make shell HOST=offline1, then: pylog mirror status --config /etc/pylog/mirror.yml
  .venv/bin/ansible-playbook -i inventories/local playbooks/site.yml     again: changes nothing
  make test                                all tests
  make down                                removes the hosts, keeps the caches
END
