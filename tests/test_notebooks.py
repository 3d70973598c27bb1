"""What a notebook shows: summaries, tables, plots of several runs, progress."""

import sys
import types
from dataclasses import replace

import fedsum
from fedsum import Explicit, FedAvg, FedSUM, Metric, Trace, Uniform, simulate
from fedsum.tasks import Partition, Quadratic
from fedsum.training import progress_bar as progress

OPTIONS = {"rounds": 20, "local_steps": 2, "eta_l": 0.05}


def run(algorithm=None, **options):
    return simulate(Quadratic.random(6, 3), algorithm or FedSUM(), Uniform(6, 2), **OPTIONS | options)


def test_summaries_and_tables():
    history = run()
    assert repr(history).startswith("History(FedSUM, 6 clients, 20 rounds: train_loss ")
    assert "<table" in history._repr_html_()
    odd = replace(history, label="<b>", diverged=20)
    assert repr(odd).endswith(", diverged by round 20)")
    assert "&lt;b&gt;" in odd._repr_html_()
    trace = Trace(("<a>", "b", "c"), Explicit(3, [[0, 2], [], [], [0]]))
    assert repr(trace) == "Trace(3 clients, 4 rounds, 2 of them empty, 0.75 active per round)"
    assert "<td>&lt;a&gt;</td><td>2</td>" in trace._repr_html_()
    split = Partition([[0, 1], [2]], labels=[0, 1, 1])
    assert repr(split) == "Partition(2 clients, 3 samples, 1 to 2 per client, 2 labels)"
    assert "<table" in split._repr_html_()
    assert "<table" in Partition([[0, 1], [2]])._repr_html_()


def test_a_plot_has_a_title_and_takes_several_histories():
    one, two = run(), run(FedAvg())
    assert one.plot().get_suptitle() == "FedSUM on 6 clients"
    figure = one.plot(run(seed=1), two)
    assert figure.get_suptitle() == "FedSUM, FedAvg on 6 clients"
    assert [line.get_label() for line in figure.axes[0].lines] == ["FedSUM (1)", "FedSUM (2)", "FedAvg"]
    assert [ax.get_ylabel() for ax in figure.axes] == ["train loss", "distance to the optimum"]
    other = replace(two, rows=[{name: row[name] for name in ("round", "train_loss")} for row in two.rows])
    assert [ax.get_ylabel() for ax in one.plot(other).axes] == ["train loss"]  # what both have


def test_own_metrics_are_drawn():
    import torch

    pairs = [(torch.randn(6, 2), torch.randint(2, (6,))) for _ in range(3)]
    metric = Metric(lambda outputs, targets: outputs.mean(), better="lower")
    task = fedsum.tasks.Task(
        torch.nn.Linear(2, 2), torch.nn.functional.cross_entropy, pairs, pairs[0], metrics={"m": metric}
    )
    history = simulate(task, FedAvg(), Uniform(3, 1), **OPTIONS)
    assert [ax.get_ylabel() for ax in history.plot().axes] == ["train loss", "test accuracy", "test m"]
    assert "test_m" in repr(history)


def test_progress_is_drawn_where_somebody_watches(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_START_AFTER", 0.0)
    monkeypatch.setattr(progress, "_UPDATE_EVERY", 0.0)
    run()
    assert capsys.readouterr().err == ""  # standard output is no terminal
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for a terminal
    run(progress=True)
    assert "FedSUM" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run(progress=False)
    assert capsys.readouterr().err == ""


def test_progress_in_a_notebook(monkeypatch):
    lines = []

    class Handle:
        def update(self, text):
            lines.append(text)

    display = types.SimpleNamespace(HTML=str, display=lambda first, display_id: Handle())
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "_START_AFTER", 0.0)
    monkeypatch.setattr(progress, "_UPDATE_EVERY", 0.0)
    run()
    assert "20/20" in lines[-2]
    assert lines[-1] == ""
