#!/usr/bin/env bash
# The host that the purged ones are compared with never had a package installed.
HOST_IMAGE=bare exec local/hosts/image.sh
