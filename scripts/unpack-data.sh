#!/bin/bash
# Unpacks the shipped activations beside their compressed file, unless that was done.
set -euo pipefail
packed=$(dirname "$0")/../data/activations.safetensors.xz
if [ "${packed%.xz}" -ot "$packed" ]; then xz -dkf "$packed"; fi
