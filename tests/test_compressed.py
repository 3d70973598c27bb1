"""Lossy uplinks: identities, the sum that survives them, and their bytes."""

import numpy as np
import pytest
import torch
from problems import RATES, K, N, noisy, schedules

from fedsum import (
    FOCUS,
    SCAFFOLD,
    SCAFFOLDM,
    Adam,
    Compressed,
    Explicit,
    FedAvg,
    FedDyn,
    FedSUM,
    FedSUMB,
    FedSUMCR,
    Identity,
    InputError,
    Int8,
    Options,
    RandomK,
    RunSpec,
    ServerOpt,
    TopK,
    check,
    simulate,
)
from fedsum.algorithms import ALGORITHMS
from fedsum.algorithms.keyed_uniform import round_stream, stream_uniform
from fedsum.flower.protocol import Ledger, MergeRules, answer
from fedsum.flower.storage import ClientStore
from fedsum.spec import dump_algorithm, parse_algorithm
from fedsum.tasks import Quadratic

CHANGES = [FedSUM(), FedSUMB(), FedSUMCR(), FOCUS(), SCAFFOLD(), SCAFFOLDM()]
LOSSY = [TopK(0.3), RandomK(0.3), RandomK(0.6, unbiased=True), Int8()]
OPTIONS = {"local_steps": K, "eta_l": RATES["decaying"], "seed": 2, "dtype": torch.float64}


def run(algorithm, pattern="third_empty", *, rounds=30, **options):
    options = OPTIONS | {"eta_g": 0.8, "rounds": rounds, "eval_every": rounds} | options
    return simulate(noisy(), algorithm, schedules()[pattern], **options)


def test_the_algorithms_that_send_changes():
    assert {cls for cls in ALGORITHMS.values() if cls.changes} == {type(algorithm) for algorithm in CHANGES}
    for algorithm in CHANGES:
        client = algorithm.init_client(torch.zeros(2))
        assert set(algorithm.changes.values()) <= set(client)


@pytest.mark.parametrize("algorithm", CHANGES, ids=lambda a: a.name)
def test_without_compression_it_is_the_algorithm(algorithm):
    for pattern in ("biased", "third_empty"):
        plain = run(algorithm, pattern)
        for everything in (Identity(), TopK(1.0), RandomK(1.0)):
            assert (run(Compressed(algorithm, everything), pattern).x - plain.x).abs().max() < 1e-12
        assert run(Compressed(algorithm, Identity()), pattern).rows[-1]["bytes"] == plain.rows[-1]["bytes"]
        assert (run(Compressed(algorithm, TopK(0.5)), pattern).x - plain.x).abs().max() > 1e-4


@pytest.mark.parametrize("algorithm", CHANGES, ids=lambda a: a.name)
@pytest.mark.parametrize("compressor", LOSSY, ids=repr)
def test_the_servers_sum_is_that_of_its_clients(algorithm, compressor):
    (vector,), wrapped = algorithm.changes.values(), [Compressed(algorithm, compressor, alpha=0.5, beta=0.7)]
    if not algorithm.reads_movement:
        wrapped.append(ServerOpt(wrapped[0], Adam(0.01)))
    for lossy in wrapped:
        history = run(lossy)
        of_clients = sum(client[vector] for client in history.clients.values())
        of_server = history.server["y"] if "y" in history.server else N * history.server["c"]
        assert (of_server - of_clients).abs().max() < 1e-12 * max(1, of_clients.abs().max())
        assert of_clients.abs().max() > 1e-2


def test_an_exact_algorithm_stays_exact():
    """On a quadratic without noise, with biased participation: the error of h goes to zero with any compressor."""
    task = noisy(noise=0.0)
    for compressor in (TopK(0.3), RandomK(0.3), Int8()):
        options = OPTIONS | {"eta_l": 0.05, "eval_every": 600, "rounds": 600}
        history = simulate(task, Compressed(FedSUM(), compressor), schedules()["biased"], **options)
        assert (history.x - task.optimum).norm() < 1e-12


def test_scallion_with_an_unbiased_compressor():
    """alpha times the values divided by alpha: what is sent without either."""
    scallion = Compressed(SCAFFOLD(), RandomK(0.5, unbiased=True), alpha=0.5)
    assert (run(scallion).x - run(Compressed(SCAFFOLD(), RandomK(0.5))).x).abs().max() < 1e-12


@pytest.mark.parametrize("compressor", [RandomK(0.25, unbiased=True), Int8()], ids=repr)
def test_unbiased_compressors_have_the_vector_as_their_mean(compressor):
    v, keys, rounds = torch.randn(40, dtype=torch.float64), torch.arange(4000), 0
    stacked = v.expand(len(keys), -1)
    sent = compressor.restore(compressor.compress(stacked, keys, rounds), v)
    # Plus a step of Int8: a coordinate next to a level is seldom rounded to the other one, perhaps never here.
    deviation = (sent.std(0) + v.abs().max() / 127) / len(keys) ** 0.5
    assert ((sent.mean(0) - v).abs() <= 5 * deviation + 1e-12).all()
    assert (sent - v).abs().max() > 1e-3


def test_draws_depend_on_seed_client_and_round_only():
    algorithm = Compressed(FedSUM(), RandomK(0.3))
    state = {"up_key": torch.zeros(3, dtype=torch.int64)}
    keys = algorithm.keyed(state, torch.tensor([4, 0, 5]), 7)["up_key"]
    assert algorithm.keyed({"up_key": torch.tensor(0)}, torch.tensor(0), 7)["up_key"] == keys[1]
    assert len({*keys.tolist(), *algorithm.keyed(state, torch.tensor([4, 0, 5]), 8)["up_key"].tolist()}) == 6
    uniform = stream_uniform(round_stream(keys, 3), 5000)
    assert torch.equal(uniform[1], stream_uniform(round_stream(keys[1], 3), 5000))
    assert not torch.equal(uniform, stream_uniform(round_stream(keys, 4), 5000))
    counts = np.histogram(uniform.numpy(), bins=20, range=(0, 1))[0]
    assert abs(counts - 750).max() < 5 * 750**0.5
    assert abs(np.corrcoef(uniform.numpy())[0, 1]) < 0.1


def test_bytes_and_zeros():
    d, v = 1000, torch.zeros(1000)
    down = 4 * d * 2 * 2  # x and y, to two clients
    for compressor, up in ((TopK(0.01), 10 * 8), (RandomK(0.01), 10 * 4 + 8), (Int8(), d + 4), (Identity(), 4 * d)):
        restored = compressor.restore(compressor.compress(v, torch.tensor(1), 0), v)
        assert torch.equal(restored, v)
        task = Quadratic(np.ones((2, d)), np.ones((2, d)))
        history = simulate(
            task, Compressed(FedSUM(), compressor), Explicit(2, [[0, 1]]), rounds=1, local_steps=1, eta_l=0.1
        )
        assert history.rows[-1]["bytes"] == down + 2 * up
        assert history.rows[-1]["communication"] == 6


def test_what_cannot_be_compressed():
    for other in (FedAvg(), FedDyn()):
        with pytest.raises(InputError, match="do not send changes; FedSUM's, FOCUS's and SCAFFOLD's do"):
            Compressed(other)
    with pytest.raises(InputError, match="is compressed already"):
        Compressed(ServerOpt(Compressed(), Adam()))
    with pytest.raises(InputError, match=r"compressor = 'TopK': a compressor: TopK\(\)"):
        Compressed(FedSUM(), "TopK")
    with pytest.raises(InputError, match="algorithm = 'FedSUM': an algorithm"):
        Compressed("FedSUM")
    for bad in ({"alpha": 0}, {"beta": 1.5}):
        with pytest.raises(InputError, match=f"^{next(iter(bad))} = "):
            Compressed(**bad)
    with pytest.raises(InputError, match=r"share = 0: a probability"):
        TopK(0)
    with pytest.raises(InputError, match=r"unbiased = 1: true or false"):
        RandomK(0.5, unbiased=1)
    with pytest.raises(InputError, match="compressor = 'Topk2': did you mean 'TopK'"):
        parse_algorithm({"name": "Compressed", "compressor": "Topk2"})


def test_a_settings_file_holds_a_compressed_algorithm():
    table = {"task": "digits", "schedule": "Biased", "rounds": 3, "local_steps": 1, "eta_l": 0.1}
    parts = {"algorithm": "scaffold", "compressor": {"name": "topk", "share": 0.1}}
    spec = RunSpec.parse(table | {"algorithm": {"name": "compressed", "alpha": 0.5, **parts}})
    assert spec.algorithm == Compressed(SCAFFOLD(), TopK(0.1), alpha=0.5)
    assert spec.algorithm.label == "SCAFFOLD, top 10%"
    assert RunSpec.parse(spec.dump()) == spec
    nested = ServerOpt(Compressed(FedSUM(), Int8()), Adam(0.02))
    assert RunSpec.parse(RunSpec.parse(table | {"algorithm": dump_algorithm(nested, 3)}).dump()).algorithm == nested


def test_the_interface_is_kept():
    for compressor in LOSSY:
        check(Compressed(FedSUMCR(), compressor, beta=0.5))


@pytest.mark.parametrize("compressor", [TopK(0.3), Int8()], ids=repr)
def test_a_deployment_in_float32_does_not_drift(compressor, tmp_path):
    """Clients add what they send in float64, as the server does."""
    algorithm, task = Compressed(FedSUM(), compressor), noisy().to(torch.device("cpu"), torch.float32)
    options = Options(rounds=200, local_steps=2, eta_l=0.05)
    ledger = Ledger(algorithm, task.init(0), N, options, MergeRules(norm_limit=0))
    stores = [ClientStore(str(tmp_path), ledger.state.job, i) for i in range(N)]
    for t in range(40):
        active = schedules()["biased"].active(0, t).tolist()
        for i in active:
            reply = answer(ledger.order(i), algorithm, task, stores[i])
            assert reply.vectors["delta"].dtype == (torch.int8 if compressor == Int8() else torch.float32)
            assert ledger.receive(reply) is None
        ledger.close_round(len(active))
    h = sum(stores[i].read().pending.state["h"] for i in ledger.state.last)
    assert h.dtype == torch.float64
    assert (ledger.state.server["y"] - h).abs().max() < 1e-12 * h.abs().max()


def test_an_index_beyond_the_model_does_no_harm():
    parts = {"values": torch.tensor([2.0, 3.0]), "indices": torch.tensor([1, 2**30], dtype=torch.int32)}
    assert TopK().restore(parts, torch.zeros(4)).tolist() == [0.0, 2.0, 0.0, 3.0]
