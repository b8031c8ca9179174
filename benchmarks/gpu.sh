#!/usr/bin/env bash
# What can only be shown on a GPU, in a few minutes: attention per document in one variable-length call.
# Needs a Python with a CUDA build of torch (any 2.9 or newer), transformers, peft and pytest; PYTHON names it.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
export PYTHONPATH=src HF_HUB_OFFLINE=1
"$PYTHON" benchmarks/gpu.py
