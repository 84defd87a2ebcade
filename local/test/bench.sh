#!/usr/bin/env bash
# One benchmark, by default the paper's workload against pylog and Apache Kafka by turns; BENCH=NAME takes another of
# bench/README.md.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

BENCH="${BENCH:-paper}"
found=(bench/*/"$BENCH.py")
[[ -f "${found[0]}" ]] || die "no benchmark is called $BENCH; bench/README.md lists them"
module=${found[0]%.py}
# The load generator is a C program over librdkafka: a client in Python would be slower than the broker it measures.
packages='gcc libc6-dev librdkafka-dev'
# Only where they are compared with.
if [[ "$BENCH" == figures || "$BENCH" == growth ]]; then packages+=' rabbitmq-server'; fi
EXTRA_PACKAGES="$packages" local/setup.sh
exec "$VENV/bin/python" -m "${module//\//.}" "$@"
