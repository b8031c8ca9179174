# ab.sh ROUNDS arms...: base vs main, CPU s
R=$1; shift
source /tmp/w/env; export OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
for r in $(seq $R); do for s in base main; do for a in "$@"; do
cd /tmp/w/H5/$s; F=false; A=$a; case $a in f_*) F=true; A=${a#f_};; esac
PYTHONPATH=/tmp/w/H5/$s/src python benchmarks/data_ours.py $A "{\"rows\":\"/tmp/w/H5/b/rows.jsonl\",\"texts\":\"/tmp/w/H5/b/texts.jsonl\",\"tokenizer\":\"/tmp/w/smollm2\",\"processes\":1,\"fastokens\":$F}" | sed "s/^/$s $a /"
done; done; done | python -c "
import sys,json,statistics,collections
d=collections.defaultdict(list)
for l in sys.stdin:
    s,a,j=l.split(' ',2); j=json.loads(j); d[a,s].append((j.get('cpu',j['seconds'])/8000*1e6, j['seconds']/8000*1e6))
for k,v in sorted(d.items()): print(k,'cpu us/row %.0f wall %.0f'%tuple(statistics.median(x) for x in zip(*v)), [round(x) for x,_ in v])
"
