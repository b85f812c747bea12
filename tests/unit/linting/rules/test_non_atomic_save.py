"""Files overwritten in place: cases beside the specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("non-atomic-save").lines


def run(body: str, before: str = "pass", loop: str = "for epoch in range(20):") -> str:
    inner = "    for x in loader:\n        loss = model(x)\n        loss.backward()\n"
    return f"import torch, os, json, pickle, time\n{before}\n{loop}\n{inner}    {body}\n"


@each(
    ("source", "expected"),
    [
        (run("torch.save(model.state_dict(), 'last.pt')"), [7]),
        (run("torch.save(model.state_dict(), path)", "path = os.path.join(OUT, 'last.pt')"), [7]),
        (run("torch.save(model.state_dict(), f'{epoch}.pt')"), []),
        (run("torch.save(model.state_dict(), 'a_%d.pt' % epoch)"), []),
        (run("torch.save(model.state_dict(), 'a_{}.pt'.format(epoch))"), []),
        (run("name = f'{epoch}.pt'; torch.save(model.state_dict(), name)"), []),
        (run("name = os.path.join(OUT, 'a.pt'); torch.save(model.state_dict(), name)"), [7]),
        (run("acc = evaluate(model); torch.save(model.state_dict(), f'best_{acc:.3f}.pt')"), []),
        (run("torch.save(model.state_dict(), f'{time.time()}.pt')"), []),
        (run("loss, acc = evaluate(model); torch.save(model.state_dict(), f'best_{acc}.pt')"), []),
        (run("torch.save(model.state_dict(), out.name + '/a.pt')", "import tempfile; out = tempfile.TemporaryDirectory()"), []),
        (run("n += 1; torch.save(model.state_dict(), f'{n}.pt')", "n = 0"), []),
        (run("torch.save(model.state_dict(), f'fold{fold}.pt')", "fold = 2"), [7]),
        (run("torch.save(model.state_dict(), 'a.tmp'); os.replace('a.tmp', 'a.pt')"), []),
        (run("torch.save(model.state_dict(), tmp); os.rename(tmp, 'a.pt')", "tmp = 'a.pt.tmp'"), []),
        (run("json.dump(rows, open('log.json', 'w'))"), [7]),
        (run("json.dump(row, open('log.jsonl', 'a'))"), []),
        (run("json.dump(row, out)", "out = open('log.jsonl', 'w')"), []),
        (run("pickle.dump(rows, out)", "out = None").replace("    pickle", "    with open('a.pkl', 'wb') as out: pickle"), [7]),
        (run("epoch == 19 and 1").replace("    epoch ==", "    if epoch == 19: torch.save(model, 'end.pt')\n    epoch =="), []),
        (run("if epoch % 5 == 0: torch.save(model, 'last.pt')"), [7]),
        (run("picture.save('now.png')"), []),
        (run("model.save('last.keras')"), [7]),
        (run("manager.save()"), []),
        (run("writer.save('a.bin')"), []),
    ],
)
def test_the_same_path_each_time(source: str, expected: list[int]) -> None:
    assert lines(source) == expected


def test_a_helper_is_judged_by_what_the_loop_gives_it() -> None:
    source = """
    import torch
    def keep(state, name="checkpoint.pt"):
        torch.save(state, name)
    for epoch in range(9):
        for x in loader:
            model(x).backward()
        keep({"epoch": epoch}, NAME)
    keep(model, "end.pt")
    """
    assert lines(source.replace("NAME", "f'{epoch}.pt'")) == []
    assert lines(source.replace("NAME", "'last.pt'")) == [4]
    assert lines(source.replace(", NAME", "")) == [4]


def test_a_class_that_keeps_its_path() -> None:
    source = """
    import torch
    class EarlyStopping:
        def __init__(self, path="best.pt"):
            self.path = path
        def __call__(self, loss, model):
            torch.save(model.state_dict(), self.path)
    stopping = EarlyStopping()
    for epoch in range(9):
        for x in loader:
            model(x).backward()
        stopping(1.0, model)
    """
    assert lines(source) == [7]


def test_a_callback_runs_in_each_epoch() -> None:
    source = """
    from tensorflow import keras
    class Keep(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.save_weights(NAME)
        def on_train_end(self, logs=None):
            self.model.save("end.keras")
    """
    assert lines(source.replace("NAME", "'last.h5'")) == [5]
    assert lines(source.replace("NAME", "f'{epoch}.h5'")) == []


def test_a_save_outside_training_is_written_once() -> None:
    assert lines("import numpy as np\nfor name in names:\n    np.save('a.npy', name)\n") == []
