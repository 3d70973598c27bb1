"""Your own task: any torch module, any loss, any clients' data."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..base.checks import InputError
from ..base.keyed import Purpose, torch_seed
from ..base.metrics import Better
from .client_data import ClientData, OwnData
from .column_sizes import warn_of_unscaled
from .evaluation import ClientScores, evaluate, score_clients
from .memory_layout import supports_channels_last
from .metric import Metric, check_metrics
from .misfits import refuse_misfit, trial_outputs
from .modules import draws, evaluation_copy, may_draw, under_seed, within
from .network import ClientLoss, Loss, Network, Outputs, Prepare
from .normalization import refuse_batch_statistics
from .samples import Samples
from .scoring import output_threshold
from .transforms import Augment
from .weights import objective_scale

_LOSS_STEPS = ("gradient", "gradients", "_loss", "_parameters")
"""methods that an engine does not call if it lays out the parameters by itself"""
_SAMPLE_STEPS = ("samples", "_prepared")
"""methods that an engine does not call if it makes samples by itself"""
_EVALUATION_STEPS = ("evaluate", "_all_outputs", "_outputs", "_parameters", "_prepared")
"""the same for evaluation; `evaluate` is called with an argument that a subclass may not take"""


class Task(Samples):
    """A torch module trained on clients' data.

    Args:
      model: a module, whose weights are every run's initial model, or a function that makes one, called under the
        run's seed. Modules with batch statistics are refused: clients would share the statistics.
      loss: of (model output, targets), the mean over the batch.
      client_data: per client a pair (inputs, targets), a torch Dataset or a Hugging Face data set, in a list or, by
        name, in a dict; or a ClientData, as `by_client` and `leaf` return it.
      test_data: a pair of tensors, or a ClientData, whose clients do not matter; or None.
      client_test_data: each client's held-out data, in the same forms, for `simulate(per_client=True)`. Without
        `test_data`, the test set is all of it.
      prepare: converts raw inputs to what the model takes, in a given dtype; applied batch by batch on the device.
      augment: random crops and flips of training images, drawn from the run's keyed randomness.
      weights: of the clients in the objective f = sum_i w_i f_i: None (1/N each), "samples" (in proportion to
        their samples), or N numbers that sum to 1.
      metrics: further metrics by name, such as {"auc": fedsum.Metric(fn, better="higher")}, logged as `test_auc`.
      gradient_norm: also report the squared norm of the full gradient, at the cost of one epoch per evaluation.
      source: the settings that made the task, if a file can hold them, so that a run can be resumed from its folder
        alone; `vision` sets them.

    Subclasses may override any method. A subclass that overrides `gradient`, `gradients` or `samples` is trained by
    its own methods in every engine, and one that overrides `evaluate` is evaluated by it.

    >>> data = [(torch.randn(20, 3), torch.randint(2, (20,))) for _ in range(5)]
    >>> task = Task(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, data)
    >>> task.n, task.init(seed=0).shape
    (5, torch.Size([8]))
    """

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss: Loss,
        client_data: ClientData | Iterable[Any] | Mapping[str, Any],
        test_data: tuple[Tensor, Tensor] | ClientData | None = None,
        *,
        client_test_data: ClientData | Iterable[Any] | Mapping[str, Any] | None = None,
        prepare: Prepare | None = None,
        augment: Augment | None = None,
        weights: str | ArrayLike | None = None,
        metrics: Mapping[str, Metric] | None = None,
        gradient_norm: bool = False,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(client_data, OwnData) and isinstance(weights, str):
            accepted = "numbers that sum to 1, one per client: the others' numbers of samples are unknown here"
            raise InputError("weights", weights, accepted)
        super().__init__(client_data, test_data, client_test_data, prepare, augment)
        self.loss, self.gradient_norm, self.compute_dtype = loss, gradient_norm, self.dtype
        self.metrics = check_metrics(metrics, self.test_data is not None)
        self._make = None if isinstance(model, nn.Module) else model
        module = under_seed(0, self._make) if callable(self._make) else model
        if not isinstance(module, nn.Module):
            raise InputError("model", type(module).__name__, "a torch module, or a function that makes one")
        self._training = copy.deepcopy(module).train()
        self._evaluation = evaluation_copy(self._training)
        shapes = {name: p.shape for name, p in self._training.named_parameters() if p.requires_grad}
        if not shapes:
            raise InputError("model", type(self._training).__name__, "a module with parameters to train")
        self._names, self._shapes = list(shapes), list(shapes.values())
        self._lengths = [shape.numel() for shape in self._shapes]
        self._scale64 = objective_scale(weights, self.partition)
        self.scale = None if self._scale64 is None else self._scale64.to(self.dtype)
        self.source = source
        trial = copy.deepcopy(self._training).to(self.dtype)  # the inputs' dtype, which the module may not have
        own_steps = self._overrides(_LOSS_STEPS) or self._overrides(_SAMPLE_STEPS)
        self.has_dropout = own_steps or may_draw(trial) or draws(partial(self._try, copy.deepcopy(trial)))
        with torch.random.fork_rng(devices=[]):
            self._use_channels_last = supports_channels_last(copy.deepcopy(trial), self._first_inputs)
            as_is = not (own_steps or self._overrides(_EVALUATION_STEPS))
            outputs = trial_outputs(copy.deepcopy(trial).eval(), self._first_inputs, check_sizes=as_is)
            refuse_batch_statistics(trial, self._first_inputs)
            test_targets = None if self.test_data is None else self.test_data[1]
            if as_is:
                refuse_misfit(loss, outputs, self.targets, test_targets)
                if prepare is None:
                    warn_of_unscaled(self.inputs, getattr(client_data, "features", None))
            self.threshold = output_threshold(outputs, self.targets, loss, test_targets is not None)

    @property
    def better(self) -> dict[str, Better]:
        """Which direction of this task's own metrics is better, by the name in a row of metrics."""
        return {f"{on}_{name}": metric.better for name, metric in self.metrics.items() for on in metric.on}

    @property
    def d(self) -> int:
        """Number of trained parameters."""
        return sum(self._lengths)

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        moved = super().to(device, dtype)
        moved.compute_dtype = dtype
        moved._training = copy.deepcopy(self._training).to(device, dtype)
        moved._evaluation = evaluation_copy(moved._training)
        moved.scale = None if self._scale64 is None else self._scale64.to(device, dtype)
        if isinstance(self.loss, nn.Module):  # it may have weights of classes
            moved.loss = copy.deepcopy(self.loss).to(device, dtype)
        return moved

    def computing_in(self, dtype: torch.dtype) -> Self:
        """This task with the network's training in another precision. x, gradients and evaluation keep theirs."""
        if self._overrides(_LOSS_STEPS):
            accepted = f"{type(self).__name__} computes its gradients itself, in the run's dtype; use 'fp32' or 'tf32'"
            raise InputError("precision", str(dtype).removeprefix("torch."), accepted)
        computing = copy.copy(self)
        computing.compute_dtype = dtype
        # Also its frozen parameters and its buffers. The trained parameters are replaced by those of x.
        computing._training = copy.deepcopy(self._training).to(dtype)
        return computing

    def init(self, seed: int) -> Tensor:
        module = self._training
        if self._make:
            module = under_seed(torch_seed(seed, Purpose.WEIGHTS), self._make)
        trained = [p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]
        return torch.cat(trained).to(self.device, self.dtype)

    def gradient(self, x: Tensor, client: int, batch: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        inputs, targets = self.samples(batch.to(self.device))
        parameters = self._parameters(x.to(self.compute_dtype))
        g = within(self._training, parameters, lambda: _gradient(self._loss(x, inputs, targets), x))
        return g if self.scale is None else g * self.scale[client]

    def gradients(self, x: Tensor, clients: Tensor, batch: Tensor) -> Tensor:
        inputs, targets = self.samples(batch)
        g: Tensor = vmap(grad(self._loss), randomness="different")(x, inputs, targets)
        return g if self.scale is None else g * self.scale[clients][:, None]

    def evaluate(self, x: Tensor, outputs: Outputs | None = None) -> dict[str, float]:
        """Loss, accuracy and the task's own metrics at x. `outputs` replaces the module's own outputs."""
        row, _ = evaluate(self, x, outputs or self._all_outputs, per_client=False)
        return row | self._gradient_norm_sq(x)

    def evaluate_clients(self, x: Tensor, outputs: Outputs | None = None) -> tuple[dict[str, float], ClientScores]:
        """The metrics of `evaluate`, and the loss and the accuracy of every client, [N].

        A client is evaluated on its `client_test_data`, otherwise on the test set, weighted by its shares of labels.
        """
        outputs = outputs or self._all_outputs
        if self._overrides(("evaluate",)):
            return self.evaluate(x), score_clients(self, x, outputs)
        row, clients = evaluate(self, x, outputs, per_client=True)
        return row | self._gradient_norm_sq(x), clients

    def model(self, x: Tensor) -> nn.Module:
        """A copy of the module with the weights x, in evaluation mode."""
        module = copy.deepcopy(self._evaluation)
        module.load_state_dict(self._parameters(x), strict=False)
        return module

    def as_network(self) -> Network | None:
        """This task as a record that an engine may compute by itself.

        A subclass that overrides how gradients follow from the module, or a step of evaluation, gives no module for it.
        For a subclass that overrides both, the result is None.
        """
        training = None if self._overrides(_LOSS_STEPS) or self._reduced else self._training
        evaluation = None if self._overrides(_EVALUATION_STEPS) else self._evaluation
        if training is None and evaluation is None:
            return None
        return Network(
            training=training,
            own_samples=self._overrides(_SAMPLE_STEPS),
            evaluation=evaluation,
            names=tuple(self._names),
            shapes=tuple(self._shapes),
            loss=self.loss,
            prepare=self.prepare,
            augment=self.augment,
            inputs=self.inputs,
            targets=self.targets,
            scale=self.scale,
            device=self.device,
            dtype=self.dtype,
            samples=self.samples,
            two_samples=self._two_samples,
            prepared=self._prepared,
            chunks=self._chunks,
            outputs=self._all_outputs,
            evaluate=self.evaluate,
            evaluate_clients=self.evaluate_clients,
        )

    def as_client_loss(self) -> ClientLoss | None:
        """This task's loss as a record; None for a subclass that overrides how gradients follow from it."""
        if self._overrides(_LOSS_STEPS):
            return None
        layers = self._training.named_modules()
        plain = {
            f"{name}.weight".lstrip(".") for name, layer in layers if type(layer) is nn.Conv2d and layer.groups == 1
        }
        return ClientLoss(
            shapes=tuple(self._shapes),
            filters=tuple(name in plain for name in self._names),
            loss=self._batch_loss,
            within=self._within,
            scale=self.scale,
            compute_dtype=self.compute_dtype,
        )

    def _two_samples(self) -> tuple[Tensor, Tensor]:
        if not self._overrides(_SAMPLE_STEPS):
            return self._first_inputs(), self.targets[:2]
        # In a deployment, only one client has samples.
        client = next(i for i, part in enumerate(self.partition.parts) if len(part))
        return self.samples(self.batches(0, 0, client, 1, 2)[0])

    def _try(self, module: nn.Module) -> None:
        with torch.no_grad():
            self.loss(module(self._first_inputs()), self.targets[:2])

    def _overrides(self, steps: tuple[str, ...]) -> bool:
        """Whether a subclass or an attribute of this object replaces one of these methods."""
        return any(name in vars(self) or getattr(type(self), name) is not getattr(Task, name) for name in steps)

    def _parameters(self, x: Tensor) -> dict[str, Tensor]:
        pieces = torch.split(x, self._lengths)
        return {n: v.view(s) for n, v, s in zip(self._names, pieces, self._shapes, strict=True)}

    def _loss(self, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        x = x.to(self.compute_dtype) if self._reduced else x
        return self._module_loss(self._parameters(x), inputs, targets)

    def _batch_loss(self, parameters: Sequence[Tensor], batch: Tensor) -> Tensor:
        inputs, targets = self.samples(batch)
        return self._module_loss(dict(zip(self._names, parameters, strict=True)), inputs, targets)

    def _within(self, parameters: Sequence[Tensor], function: Callable[[], Tensor]) -> Tensor:
        return within(self._training, dict(zip(self._names, parameters, strict=True)), function)

    def _module_loss(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        if self._reduced and inputs.is_floating_point():
            inputs = inputs.to(self.compute_dtype)
        outputs = functional_call(self._training, parameters, (inputs,))
        if self._reduced and isinstance(outputs, Tensor):
            outputs = outputs.to(self.dtype)  # the loss sums over a batch, for which bf16 has too few bits
        return self.loss(outputs, targets)

    @property
    def _reduced(self) -> bool:
        """Whether the network computes with fewer bits than x has."""
        return self.compute_dtype != self.dtype

    def _outputs(self, x: Tensor, inputs: Tensor) -> Any:
        return functional_call(self._evaluation, self._parameters(x), (inputs,))

    def _all_outputs(self, x: Tensor, inputs: Tensor) -> Iterator[tuple[slice, Any]]:
        for chunk in self._chunks(len(inputs)):
            yield chunk, self._outputs(x, self._prepared(inputs[chunk]))

    def _gradient_norm_sq(self, x: Tensor) -> dict[str, float]:
        return {"gradient_norm_sq": float(self._full_gradient(x).square().sum())} if self.gradient_norm else {}

    def _full_gradient(self, x: Tensor) -> Tensor:
        """The gradient of f = (1/N) sum_i N w_i f_i at x, dropout off."""
        total = torch.zeros_like(x)
        x = x.detach().requires_grad_()
        parameters = self._parameters(x)
        for client, part in enumerate(self.partition.parts):
            samples = torch.from_numpy(part).to(self.device)
            for chunk in self._chunks(len(part)):
                indices = samples[chunk]
                outputs = self._outputs(x, self._prepared(self.inputs[indices]))
                value = self.loss(outputs, self.targets[indices])
                g = within(self._evaluation, parameters, partial(_gradient, value, x))
                weight = 1.0 if self.scale is None else self.scale[client]
                total += g * (weight * len(indices) / (len(part) * self.n))
        return total


def _gradient(value: Tensor, x: Tensor) -> Tensor:
    (g,) = torch.autograd.grad(value, x)
    return g
