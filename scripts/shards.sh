#!/usr/bin/env bash
# One process for each shard on this machine, each with a GPU of its own where there are any:
#   scripts/shards.sh 4 experiment=table3 subset=english
# Ctrl-C or SIGTERM ends all of them; the same command goes on. Logs: sweeps/shard-I-of-N.log
set -u
[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || { echo "usage: $0 NUMBER_OF_SHARDS [NAME=VALUE ...]" >&2; exit 2; }
shards=$1
shift
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
gpus=()
if [[ ${CUDA_VISIBLE_DEVICES:-} ]]; then
  IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES"
elif command -v nvidia-smi >/dev/null; then
  mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null)
fi
# Without one they share the cores: each of several takes its part, unless that is set already.
if ((shards > 1 && !${#gpus[@]})); then
  cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
  physical=$(lscpu -p=core,socket 2>/dev/null | grep -v '^#' | sort -u | wc -l)
  ((physical && physical < cores)) && cores=$physical
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > shards ? cores / shards : 1))}
fi
mkdir -p sweeps

children=()
for ((shard = 0; shard < shards; shard++)); do
  log=sweeps/shard-$shard-of-$shards.log
  if ((${#gpus[@]})); then export CUDA_VISIBLE_DEVICES=${gpus[shard % ${#gpus[@]}]}; fi
  "$python" run.py "$@" shard="$shard/$shards" >"$log" 2>&1 &
  children+=($!)
done
stopped=0
trap 'stopped=143; kill -TERM "${children[@]}" 2>/dev/null' TERM
trap 'stopped=130; kill -TERM "${children[@]}" 2>/dev/null' INT

failed=0
for shard in "${!children[@]}"; do
  wait "${children[shard]}"
  status=$?
  # A signal ends `wait` early: ask again for the child's own status.
  while kill -0 "${children[shard]}" 2>/dev/null; do wait "${children[shard]}"; status=$?; done
  ((status == 0)) && continue
  failed=1
  echo "shard $shard/$shards ended with status $status: $(tail -n 1 "sweeps/shard-$shard-of-$shards.log")" >&2
done
((stopped)) && exit $stopped
exit $failed
