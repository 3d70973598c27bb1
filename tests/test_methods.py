"""Identities, refusals and biases of the algorithms that the FedSUM paper does not compare with."""

import algorithm_facts
import algorithm_pages
import pytest
import torch
from problems import RATES, K, N, noisy, schedules

from fedsum import (
    FOCUS,
    SCAFFOLD,
    SCAFFOLDM,
    SGD,
    Adagrad,
    Adam,
    AmplifiedFedAvg,
    AmplifiedSCAFFOLD,
    Biased,
    Explicit,
    FedAdagrad,
    FedAdam,
    FedAsync,
    FedAU,
    FedAvg,
    FedAvgM,
    FedAWE,
    FedCM,
    FedDyn,
    FedExP,
    FedProx,
    FedStale,
    FedSUM,
    FedSUMB,
    FedSUMCR,
    FedYogi,
    InputError,
    KnownFedAvg,
    RunSpec,
    ServerOpt,
    Yogi,
    simulate,
)
from fedsum.algorithms import ALGORITHMS
from fedsum.spec import parse_algorithm
from fedsum.tasks import Quadratic


def run(algorithm, schedule, *, rounds=30, eta_g=0.8, local_steps=K):
    options = {
        "rounds": rounds,
        "local_steps": local_steps,
        "eta_l": RATES["decaying"],
        "seed": 2,
        "eval_every": rounds,
    }
    return simulate(noisy(), algorithm, schedule, **options, eta_g=eta_g, dtype=torch.float64)


def distance(one, other, pattern, eta_g=0.8, other_eta_g=0.8):
    schedule = schedules()[pattern]
    return (run(one, schedule, eta_g=eta_g).x - run(other, schedule, eta_g=other_eta_g).x).abs().max()


EQUAL = {
    "one round per window: FedAvg": (AmplifiedFedAvg(period=1), FedAvg(), AmplifiedFedAvg(period=2)),
    "one round per window: SCAFFOLD": (AmplifiedSCAFFOLD(period=1), SCAFFOLD(), AmplifiedSCAFFOLD(period=2)),
    "no momentum: SCAFFOLD": (SCAFFOLDM(beta=1.0), SCAFFOLD(), SCAFFOLDM(beta=0.9)),
    "no momentum: FedAvg": (FedCM(alpha=1.0), FedAvg(), FedCM(alpha=0.9)),
    "no server momentum: FedAvg": (FedAvgM(beta=0.0), FedAvg(), FedAvgM(beta=0.1)),
    "no proximal term: FedAvg": (FedProx(mu=0.0), FedAvg(), FedProx(mu=0.1)),
    "no old gradients: FedAU": (FedStale(beta=0.0), FedAU(), FedStale(beta=0.1)),
}


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("pattern", ["biased", "third_empty"])
def test_limits_of_options(name, pattern):
    limit, plain, near = EQUAL[name]
    assert distance(limit, plain, pattern) < 1e-12
    assert distance(near, plain, pattern) > 1e-4


def test_focus_with_one_local_step_is_fedsum_b():
    for pattern in ("biased", "third_empty"):
        schedule = schedules()[pattern]
        for steps, equal in ((1, True), (2, False)):
            focus, fedsum_b = (run(algorithm, schedule, local_steps=steps).x for algorithm in (FOCUS(), FedSUMB()))
            difference = (focus - fedsum_b).abs().max()
            assert difference < 1e-12 if equal else difference > 1e-4


WRAPPED = {
    FedAvgM: (FedAvgM(beta=0.7), lambda lr: SGD(lr, momentum=0.7)),
    FedAdagrad: (FedAdagrad(), Adagrad),
    FedYogi: (FedYogi(), Yogi),
    FedAdam: (FedAdam(beta1=0.8), lambda lr: Adam(lr, beta1=0.8)),
}


@pytest.mark.parametrize("cls", WRAPPED)
@pytest.mark.parametrize("pattern", ["biased", "third_empty"])
def test_fedavg_with_an_optimiser_is_the_algorithm_of_that_name(cls, pattern):
    algorithm, optimiser = WRAPPED[cls]
    # With eta_g = 1 the optimiser's lr is the algorithm's eta_g.
    assert distance(ServerOpt(FedAvg(), optimiser(0.03)), algorithm, pattern, 1.0, 0.03) < 1e-11
    assert distance(ServerOpt(FedAvg(), optimiser(0.04)), algorithm, pattern, 1.0, 0.03) > 1e-3


def test_an_optimiser_without_momentum_is_the_algorithm_itself():
    for cls in ALGORITHMS.values():
        if cls is not ServerOpt and not cls.reads_movement:
            eta_g = 1.0 if cls in (FedExP, FedDyn, FedAsync) else 0.8
            assert distance(ServerOpt(cls(), SGD()), cls(), "third_empty", eta_g, eta_g) < 1e-12
            assert distance(ServerOpt(cls(), SGD(0.5)), cls(), "third_empty", eta_g, eta_g) > 1e-6


@pytest.mark.parametrize("inner", [FedSUMCR(), FedAWE(), AmplifiedFedAvg(), AmplifiedSCAFFOLD()], ids=lambda a: a.name)
def test_algorithms_that_use_how_far_x_moved_take_no_optimiser(inner):
    with pytest.raises(InputError, match=f"{inner.label} uses how far x moved"):
        ServerOpt(inner, Adam())


def test_wrong_parts_of_a_server_optimiser():
    with pytest.raises(InputError, match="algorithm = 'FedSUM': an algorithm"):
        ServerOpt("FedSUM")
    with pytest.raises(InputError, match=r"optimiser = 0.1: a server optimiser"):
        ServerOpt(FedSUM(), 0.1)
    with pytest.raises(InputError, match="has a server optimiser already"):
        ServerOpt(ServerOpt())
    for bad in ({"lr": 0}, {"beta1": 1.0}, {"beta2": -0.1}, {"tau": 0}):
        with pytest.raises(InputError, match=f"^{next(iter(bad))} = "):
            Adam(**bad)
    with pytest.raises(InputError, match="optimiser = 'Adan': did you mean 'Adam'"):
        parse_algorithm({"name": "ServerOpt", "optimiser": "Adan"})
    with pytest.raises(InputError, match="algorithm = 'FedSUN': did you mean 'FedSUM'"):
        parse_algorithm({"name": "ServerOpt", "algorithm": "FedSUN"})


def test_an_optimiser_rests_in_an_empty_round_if_the_algorithm_does():
    momentum = SGD(momentum=0.9)
    before, after = [[0, 3]], [[0, 3], []]
    for inner, rests in ((FedAvg(), True), (FedAU(), True), (FedSUM(), False), (FedStale(), False)):
        one, two = (run(ServerOpt(inner, momentum), Explicit(N, sets), rounds=len(sets)) for sets in (before, after))
        assert torch.equal(one.x, two.x) == rests
        assert torch.equal(one.server["opt_m"], two.server["opt_m"]) == rests


def test_a_settings_file_holds_a_wrapped_algorithm_and_its_run_is_resumed(tmp_path):
    algorithm = ServerOpt(FedAU(cutoff=3), Adam(0.02))
    options = {"local_steps": 2, "eta_l": 0.05, "eval_every": 5, "checkpoint_rounds": 5}

    def go(rounds, folder, stop=None):
        def on_round(done):
            if done.round == stop:
                raise KeyboardInterrupt

        schedule = Biased(N, group=1)
        return simulate(noisy(), algorithm, schedule, rounds=rounds, folder=folder, on_round=on_round, **options)

    with pytest.raises(KeyboardInterrupt):
        go(12, tmp_path, stop=7)
    assert torch.equal(go(12, tmp_path).x, go(12, None).x)
    assert "resumed after round 5" in (tmp_path / "log").read_text()
    table = {"task": "digits", "schedule": "Biased", "rounds": 3, "local_steps": 1, "eta_l": 0.1}
    spec = RunSpec.parse(
        table | {"algorithm": {"name": "serveropt", "algorithm": "fedsum", "optimiser": {"name": "yogi", "lr": 0.3}}}
    )
    assert spec.algorithm == ServerOpt(FedSUM(), Yogi(0.3))
    assert spec.algorithm.label == "FedSUM + Yogi"
    assert RunSpec.parse(spec.dump()) == spec


def test_options_that_do_not_fit_a_run_are_refused():
    with pytest.raises(InputError, match=r"eta_g = 0.8: 1: FedExP computes the global learning rate itself"):
        run(FedExP(), schedules()["uniform"])
    with pytest.raises(InputError, match=r"eta_g = 0.8: 1: FedDyn has no global learning rate"):
        run(FedDyn(), schedules()["uniform"])
    for make in (lambda: FedProx(mu=-0.1), lambda: FedDyn(alpha=0)):
        with pytest.raises(InputError, match="a finite number"):
            make()
    with pytest.raises(InputError, match="3 probabilities for 7 clients; give one per client"):
        run(KnownFedAvg(p=[0.2, 0.3, 0.4]), schedules()["uniform"])
    with pytest.raises(InputError, match="3 probabilities for 7 clients"):
        run(ServerOpt(KnownFedAvg(p=[0.2, 0.3, 0.4]), SGD()), schedules()["uniform"])
    with pytest.raises(InputError, match=r"p\[1\] = 0.0: a probability in \(0, 1\]"):
        KnownFedAvg(p=[0.2, 0.0])
    for bad in (AmplifiedFedAvg, AmplifiedSCAFFOLD):
        with pytest.raises(InputError, match="period = 0"):
            bad(period=0)
    for make in (lambda: FedCM(alpha=0), lambda: SCAFFOLDM(beta=1.5), lambda: FedStale(beta=-1)):
        with pytest.raises(InputError, match="a probability in"):
            make()
    with pytest.raises(InputError, match=r"^beta = 1.5"):
        FedAvgM(beta=1.5)


def test_fedexp_takes_longer_steps_where_clients_disagree():
    """Clients that pull in opposite directions: the mean displacement is small, so the global rate is above 1."""
    task = Quadratic([[1.0, 1.0]] * 2, [[9.0, 1.0], [-9.0, 1.0]])
    options = {"rounds": 1, "local_steps": 1, "eta_l": 0.1, "dtype": torch.float64}
    everyone = Explicit(2, [[0, 1]])
    x = simulate(task, FedExP(), everyone, **options).x
    plain = simulate(task, FedAvg(), everyone, **options).x
    # D_i = 0.1 (-9, -1) and 0.1 (9, -1): eta = 0.82 / (2 (0.01 + 0.001)).
    torch.testing.assert_close(x, 0.82 / 0.022 * plain, rtol=1e-9, atol=0)


def test_the_table_of_facts_is_generated_and_says_who_is_biased():
    after = algorithm_facts.PAGE.read_text().split(algorithm_facts.START)[1]
    assert after.split(algorithm_facts.END)[0] == algorithm_facts.table()
    written = {path.name: path.read_text() for path in algorithm_pages.FOLDER.glob("*.md")}
    assert written == algorithm_pages.pages()  # python tests/algorithm_pages.py
    bias = {name: algorithm_facts.measured(name)[0] for name in ALGORITHMS}
    assert bias["FedAvg"] > 0.1
    assert 0.7 * bias["FedAvg"] < bias["FedCM"] < 1.3 * bias["FedAvg"]
    assert bias["KnownFedAvg"] < 0.3 * bias["FedAvg"]
    exact = {name for name, value in bias.items() if value < 1e-9}
    assert exact == {
        *("FedSUM", "FedSUMB", "FedSUMCR", "SCAFFOLD", "SCAFFOLDM", "AmplifiedSCAFFOLD"),
        *("FOCUS", "FedDyn", "Compressed"),
    }
    assert max(bias["FOCUS"], bias["FedDyn"]) < 1e-12
    assert 0.9 * bias["FedAvg"] < bias["FedProx"] < 1.1 * bias["FedAvg"]
