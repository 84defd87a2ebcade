#!/usr/bin/env bash
exec local/test/previous.sh
