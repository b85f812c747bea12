import time, scene
def test_x(place, finished, copied):
    t=time.time()
    e=scene.unchoke("fit",*place.fit_args(copied)); print("again",time.time()-t); print(e.stdout[-1500:],e.stderr[-3000:])
    t=time.time()
    e=scene.unchoke("fit",*place.fit_args(copied.parent/'n')); print("new",time.time()-t, e.code); print(e.stdout[-1500:],e.stderr[-3000:])
    assert scene.outcome(copied)==scene.outcome(copied.parent/'n')
    t=time.time()
    e=scene.unchoke("fit",*place.fit_args(copied.parent/'o',engine='openvino')); print("ov",time.time()-t, e.code); print(e.stderr[-3000:])
    e=scene.script("fit",*place.fit_args(copied)).end(); print("again",time.time()-t);
    print(scene.strays(copied))
