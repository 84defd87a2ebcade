#!/usr/bin/env bash
# The paper's workload against pylog and Apache Kafka by turns; bench/README.md has the smaller ones.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

# The load generator is a C program over librdkafka: a client in Python would be slower than the broker it measures.
EXTRA_PACKAGES='gcc libc6-dev librdkafka-dev' local/setup.sh
exec "$VENV/bin/python" -m bench.paper "$@"
