"""Task caches: used by the next run, freed with the task, never confused with another task's."""

import copy
import gc
import pickle
import weakref
from dataclasses import dataclass

import nets
import pytest
import torch

from fedsum import FedSUM, Uniform, simulate
from fedsum.engine import bound_task
from fedsum.engine.cache import cache_of
from fedsum.tasks import Quadratic, Task

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Parabola(Quadratic):
    """Stays on the CPU when it is bound to CUDA."""

    def to(self, device, dtype):
        return super().to(CPU, dtype)


class Network(Task):
    def to(self, device, dtype):
        return super().to(CPU, dtype)


def parabola():
    return Parabola([[1.0], [3.0]], [[0.0], [4.0]])


def network():
    data = nets.images()
    return Network(nets.convolutional, torch.nn.functional.cross_entropy, data, (data.inputs[:5], data.targets[:5]))


@pytest.mark.parametrize("make", [parabola, network])
def test_a_later_run_finds_the_task_on_its_device(make):
    task = make()
    bound = bound_task(task, CUDA, torch.float32)
    assert bound is not task
    assert bound_task(task, CUDA, torch.float32) is bound
    assert bound_task(task, CUDA, torch.float64) is not bound
    assert bound_task(task, torch.device("cuda:1"), torch.float32) is not bound
    assert bound_task(make(), CUDA, torch.float32) is not bound
    cache_of(bound).graphs["options"] = "graph"
    assert cache_of(bound_task(task, CUDA, torch.float32)).graphs == {"options": "graph"}
    assert cache_of(bound_task(task, CUDA, torch.float64)).graphs == {}


def test_nothing_is_cached_for_a_cpu():
    task = parabola()
    assert bound_task(task, CPU, torch.float32) is not bound_task(task, CPU, torch.float32)


def test_a_task_with_a_replaced_attribute_is_another():
    task = parabola()
    first, noise = bound_task(task, CUDA, torch.float32), task.noise
    cache_of(first).graphs["options"] = "graph"
    task.noise = 5.0
    second = bound_task(task, CUDA, torch.float32)
    assert second.noise == 5.0
    assert cache_of(second).graphs == {}
    task.note = "one more attribute"
    assert bound_task(task, CUDA, torch.float32) is not second
    del task.note
    task.noise = noise
    assert bound_task(task, CUDA, torch.float32) is first


def test_an_attribute_is_not_confused_with_one_that_was_freed():
    task = parabola()
    for value in range(50):
        task.centers = None  # the next tensor reuses the id of the freed one
        task.centers = torch.full((2, 1), float(value), dtype=torch.float64)
        assert bound_task(task, CUDA, torch.float32).centers[0, 0] == value


@pytest.mark.parametrize("make", [parabola, network])
def test_caches_are_freed_with_the_task(make):
    class Graphs:
        def __init__(self, task):
            self.task = task

    task = make()
    bound = bound_task(task, CUDA, torch.float32)
    cache = cache_of(bound)
    cache.graphs["options"] = Graphs(bound)
    freed = [weakref.ref(thing) for thing in (task, bound, cache, cache.graphs["options"])]
    del task, bound, cache
    gc.collect()
    assert [reference() for reference in freed] == [None] * 4


def test_a_task_that_outlives_the_callers_has_an_empty_cache():
    task = parabola()
    bound = bound_task(task, CUDA, torch.float32)
    cache_of(bound).graphs["options"] = "graph"
    del task
    gc.collect()
    assert cache_of(bound).graphs == {}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))])
def test_copies_and_pickles_carry_no_caches(copied):
    task = network()
    attributes = set(vars(task))
    bound = bound_task(task, CUDA, torch.float32)
    cache_of(bound).graphs["options"] = "graph"
    cache_of(bound).image_sets.append((bound.inputs, "images"))
    assert set(vars(task)) == set(vars(bound)) == attributes
    for original in (task, bound):
        cache = cache_of(copied(original))
        assert (cache.graphs, cache.image_sets) == ({}, [])
    assert cache_of(bound).graphs == {"options": "graph"}


def test_a_task_whose_to_returns_itself_is_not_kept_alive():
    class Here(Quadratic):
        def to(self, device, dtype):
            return self

    task = Here([[1.0], [3.0]], [[0.0], [4.0]])
    assert bound_task(task, CUDA, torch.float32) is task
    freed = weakref.ref(task)
    del task
    gc.collect()
    assert freed() is None


def test_tasks_without_identity_are_not_cached():
    @dataclass
    class Unhashable(Parabola):
        curvature: object
        centers: object

        def __post_init__(self):
            super().__init__(self.curvature, self.centers)

    task = Unhashable([[1.0], [3.0]], [[0.0], [4.0]])
    bound = bound_task(task, CUDA, torch.float32)
    assert bound.centers.dtype == torch.float32
    assert cache_of(bound).graphs == {}


def test_equal_tasks_have_caches_of_their_own():
    class Equal(Parabola):
        def __eq__(self, other):
            return isinstance(other, Equal)

        def __hash__(self):
            return 1

    tasks = [Equal([[1.0], [3.0]], [[0.0], [center]]) for center in (4.0, 5.0)]
    bound = [bound_task(task, CUDA, torch.float32) for task in tasks]
    assert [float(task.centers[1, 0]) for task in bound] == [4.0, 5.0]
    assert all(cache_of(task).task is task for task in bound)


def test_simulate_leaves_the_task_as_it_was():
    task = nets.task()
    attributes = dict(vars(task))
    simulate(task, FedSUM(), Uniform(nets.N, 2), rounds=1, local_steps=1, eta_l=0.1, engine="batched")
    assert all(vars(task)[name] is value for name, value in attributes.items())
    assert vars(task).keys() == attributes.keys()
