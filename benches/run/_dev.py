import sys,os,json,time,pickle,statistics,subprocess,threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
mode,names,turns=sys.argv[1],sys.argv[2].split(','),int(sys.argv[3])
sys.path[:0]=['benches','src']
os.environ['CUDA_VISIBLE_DEVICES']=''
import bench_notebook as b
exp=json.loads((b.HERE/'expected.json').read_text())
if names==['all']: names=list(exp)
out=Path(os.environ['OUT']); data=Path('/tmp/nbd2')
if not (data/'data').exists() : subprocess.run([sys.executable,b.HERE/'make_data.py',data],check=True)
import shutil
print(open('/sys/devices/system/cpu/cpu0/topology/thread_siblings_list').read() if os.path.exists('/sys/devices/system/cpu/cpu0/topology/thread_siblings_list') else 'no topology')
if 'r' in mode:
    os.sched_setaffinity(0,{0,2})
    from unchoke_doctor.code.source import read_source
    from unchoke_doctor.notebook_run import run_notebook
    runs={}
    for n in names:
        p=data/f'{n}.ipynb'; p.write_text(json.dumps(b.read_notebook(n,data))); t=time.time()
        r=run_notebook(p,[c.number or 0 for c in read_source(p).cells if c.kind=='code'],steps=20,timeout_s=180.,keep_going=True,say=lambda s:None)
        runs[n]=r; pickle.dump(runs,open(out/'runs.pkl','wb'))
        print(n,f'{time.time()-t:.0f}s',{k:(c.status,round(c.wall_s,1),c.figures.get('steps'),c.error) for k,c in r.cells.items() if c.error or c.wall_s>.5},list(r.recordings),r.notes[:2],flush=True)
if 't' in mode:
    os.sched_setaffinity(0,set(range(16)))
    free=[(0,2),(4,6),(8,10),(12,14)]; lock=threading.Lock(); res={"notebooks":{}}
    def one(n):
        with lock: pair=free.pop()
        folder=Path(f'/tmp/nbt_{n}'); folder.mkdir(exist_ok=True)
        if not (folder/'data').exists(): (folder/'data').symlink_to(data/'data')
        p=exp[n]; book=b.read_notebook(n,folder)
        def secs(bk):
            path=folder/'timed.ipynb'; path.write_text(json.dumps(bk))
            d=subprocess.run(['taskset','-c','%d,%d'%pair,sys.executable,'-c',b.TIMED,path.name,json.dumps(p)],cwd=folder,capture_output=True,text=True)
            if d.returncode: print(n,d.stderr[-700:],flush=True); return float('nan')
            return round(float(d.stderr.strip().splitlines()[-1]),3)
        books=[b.edited(book,p['here'])]+[b.edited(book,c['twin']+p['here']) for c in p['causes']]
        spent=[[] for _ in books]
        for _ in range(turns):
            for bk,s in zip(books,spent): s.append(secs(bk))
        w=statistics.median(spent[0])
        with lock:
            free.append(pair); res["notebooks"][n]={"seconds":spent}; (out/'times.json').write_text(json.dumps(res))
            print(n,f'{w:.1f}s',[(c['codes'][0],f'{1-statistics.median(s)/w:.0%}',s) for c,s in zip(p['causes'],spent[1:])],spent[0],flush=True)
    with ThreadPoolExecutor(4) as pool: list(pool.map(one,names))
