#!/usr/bin/env bash
exec local/previous.sh
