# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
hosts='live1 live2 live3'
image=packages
min_tests=5
# The matrix may run in parts, by PYTEST_ADDOPTS.
[[ -z "${PYTEST_ADDOPTS:-}" ]] || min_tests=1
keeps_numbers=yes
