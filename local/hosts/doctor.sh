#!/usr/bin/env bash
# Runs the checks; on a machine so bare that Python is missing, that is the first finding.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

if ! /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  printf '%-4s  %-15s  %-24s  %-13s  %s\n' '' check found wanted remedy \
    FAIL python3 "$(/usr/bin/python3 --version 2>/dev/null || echo 'not installed')" '3.11 or newer' 'make setup'
  exit 1
fi
exec /usr/bin/python3 -m local.hosts.doctor
