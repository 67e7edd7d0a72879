#!/usr/bin/env bash
# Several seeds of one configuration, one after another; finished ones are skipped.
#
#   scripts/sweep_seeds.sh "1 2 3" dataset=digits model=smallcnn compressor=topk
#
# The same without a shell loop: accordion-bench sweep seed=1,2,3 dataset=digits model=smallcnn compressor=topk
set -uo pipefail

if [ $# -lt 1 ]; then
  echo "usage: $0 'SEED ...' [SETTING=VALUE ...]" >&2
  exit 2
fi
seeds=$1
shift
failed=()
for seed in $seeds; do
  accordion-bench run "seed=$seed" "$@"
  code=$?
  case $code in
    0) ;;
    1) failed+=("$seed") ;;  # this run failed; the others may not
    *) exit $code ;;         # wrong input, or interrupted: so would the others be
  esac
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: seeds ${failed[*]}" >&2
  exit 1
fi
