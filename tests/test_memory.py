"""The memory of a run with a model of 110 million parameters, on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from sentences import small_bert

BERT_BASE = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "vocab_size": 30_522,
}
# In a process of its own, whose peak is not that of other tests.
CODE = """
import json, resource
from pathlib import Path
import pytest
from sentences import small_sst2
import fedsum
small_sst2(Path({folder!r}), pytest.MonkeyPatch())
task = fedsum.tasks.text("sst2", model={model!r}, pretrained=False, lengths=[64])
options = dict(rounds=4, local_steps=1, batch_size=4, eta_l=1e-4, eval_every=4, engine="loop")
history = fedsum.simulate(task, fedsum.{algorithm}(), fedsum.Cyclic(8, 2), **options)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([task.d, len(history.clients), history.rows[-1]["train_loss"], peak]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "vectors"), [("FedSUM", 30), ("FedSUMCR", 40)])
@pytest.mark.skipif(psutil.virtual_memory().available < 20e9, reason="needs 20 GB of free memory")
def test_bert_base_with_eight_clients_fits_in_24_gb(tmp_path, algorithm, vectors):
    model = small_bert(tmp_path / "bert", weights=False, **BERT_BASE)
    code = CODE.format(folder=str(tmp_path), model=str(model), algorithm=algorithm)
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=here)
    d, clients, loss, peak = json.loads(done.stdout.splitlines()[-1])
    print(f"{algorithm}: {d} parameters, {clients} clients, peak {peak / 1e9:.1f} GB, {peak / 4 / d:.1f} vectors")
    assert d > 109e6
    assert clients == 8
    assert loss > 0
    assert peak < 24e9
    assert peak < vectors * 4 * d
