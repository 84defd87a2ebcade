# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
hosts='live1 live2 live3'
image=packages
# The matrix may run in parts, by PYTEST_ADDOPTS.
min_tests=${PYTEST_ADDOPTS:+1}
min_tests=${min_tests:-5}
keeps_numbers=yes
