"""Our own kernels, interpreted on a CPU (set in conftest.py): exact except for the intended rounding."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedsum.engine.cache import bound_task, cache_of
from fedsum.engine.kernels import networks
from fedsum.tasks import Augment, Standardize, Task, models

# Only a missing Triton skips these tests: a missing module of ours must fail.
pytest.importorskip("triton")
from fedsum.engine.kernels import conv_pool, layers, scaled

INTERPRETED = not torch.cuda.is_available()
pytestmark = pytest.mark.skipif(not INTERPRETED, reason="triton is interpreted only where there is no GPU")


def grid(*shape, seed=0):
    """Numbers of few bits, which rounding does not change; many are equal."""
    return torch.randint(-32, 33, shape, generator=torch.Generator().manual_seed(seed)) / 16


def reference(images, weight, bias):
    """Client by client, channels innermost as in the kernels."""
    pooled = [
        F.max_pool2d(F.relu(F.conv2d(x.permute(0, 3, 1, 2), w, b, padding=1)), 2)
        for x, w, b in zip(images, weight, bias, strict=True)
    ]
    return torch.stack(pooled).permute(0, 1, 3, 4, 2)


class Applied(torch.autograd.Function):
    """Our forward and backward passes as an autograd function."""

    @staticmethod
    def forward(ctx, images, weight, bias, seed, drop):
        ctx.weight, ctx.bias = weight, bias
        padded = conv_pool.PaddedImages.of_batches(images.permute(0, 1, 4, 2, 3))
        pooled, ctx.saved = conv_pool.forward(padded, weight, bias, torch.tensor([seed]), drop)
        ctx.mark_non_differentiable(ctx.saved.code)
        return pooled.permute(0, 1, 3, 4, 2), ctx.saved.code

    @staticmethod
    def backward(ctx, slope, *_):
        # All parameters in one row per client, as in x.
        whole = torch.full((len(ctx.bias), ctx.weight[0].numel() + ctx.bias.shape[1]), torch.nan)
        weight = whole[:, : ctx.weight[0].numel()].view(ctx.weight.shape)
        bias = whole[:, ctx.weight[0].numel() :]
        slope = slope.permute(0, 1, 4, 2, 3)
        images = conv_pool.backward(ctx.saved, slope, weight, bias, to_images=ctx.needs_input_grad[0])
        if images is not None:
            images = conv_pool.to_torch_layout(images, weight.shape[2]).permute(0, 1, 3, 4, 2)
        return images, weight, bias, None, None


def apply(images, weight, bias, drop=0.0, seed=0):
    """Pooled images and their codes, channels innermost."""
    pooled, code = Applied.apply(images, weight, bias, seed, drop)
    return pooled, code[..., : bias.shape[1]]


def rounded(x):
    """x rounded to ten bits; the gradient is passed unchanged."""
    largest = x.detach().abs().max()
    return x + ((x.detach() / largest.frexp().exponent.exp2()).half() * largest.frexp().exponent.exp2() - x.detach())


# Patches of 16 or 48 numbers are one operand; 5 and 20 channels do not fill their blocks; 40 need two words of 32.
@pytest.mark.parametrize(("ins", "outs"), [(1, 10), (3, 32), (5, 20), (16, 32), (40, 7)])
def test_values_and_gradients_are_those_of_torch(ins, outs):
    clients, batch, height, width = 2, 13, 6, 10  # more pixels than one program handles, and not a multiple
    images = grid(clients, batch, height, width, ins)
    weight, bias = grid(clients, outs, ins, 3, 3, seed=1), grid(clients, outs, seed=2)
    slope = grid(clients, batch, height // 2, width // 2, outs, seed=3)
    inputs = [images.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()]
    ours, _ = apply(*inputs)
    theirs = reference(*inputs)
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=0)
    assert (ours == 0).any()
    assert (ours > 0).any()
    found, expected = (torch.autograd.grad(pooled, inputs, slope) for pooled in (ours, theirs))
    assert ((found[0] - expected[0]).abs() <= 2**-11 * expected[0].abs()).all()  # rounded to factors
    for got, right in zip(found[1:], expected[1:], strict=True):
        assert (got - right).norm() <= 1e-6 * right.norm()


VALUES = torch.tensor([1.0, 1 + 0.51 * 2**-10, 1 + 2**-10, 1 + 0.49 * 2**-10, 3.1415927])
NEAREST = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-10, 1.0, 3.140625])


@pytest.mark.parametrize("ins", [1, 5])
def test_factors_are_rounded_to_the_nearest_of_ten_bits(ins):
    n = len(VALUES)
    weight, bias = torch.zeros(1, 4, ins, 3, 3), torch.full((1, 4), -1.0)
    weight[:, :, 0, 1, 1] = 1.0  # with the bias: the first channel of the image minus one
    images = VALUES.reshape(1, n, 1, 1, 1).expand(1, n, 2, 2, ins)
    pooled, _ = apply(images, weight, bias)
    assert torch.equal(pooled[0, :, 0, 0, 0], NEAREST - 1)
    images, weight = torch.ones(1, 1, 2, 2, ins), torch.zeros(1, n, ins, 3, 3)
    weight[:, :, 0, 1, 1] = VALUES
    pooled, _ = apply(images, weight, torch.full((1, n), -1.0))
    assert torch.equal(pooled[0, 0, 0, 0], NEAREST - 1)


@pytest.mark.parametrize(("ins", "scale"), [(1, 2.0**-90), (5, 2.0**90)])
@pytest.mark.parametrize("of", ["images", "filters"])
def test_very_small_or_large_factors_lose_nothing(ins, scale, of):
    inputs = [grid(2, 3, 8, 8, ins), grid(2, 6, ins, 3, 3, seed=1), torch.zeros(2, 6)]
    scaled = [values.clone() for values in inputs]
    scaled[of == "filters"] *= scale
    scaled[of == "filters"][1] *= 64  # clients have different scales
    found = []
    for each in (inputs, scaled):
        each = [values.requires_grad_() for values in each]
        pooled, _ = apply(*each)
        found.append((pooled, *torch.autograd.grad(pooled, each[:2], grid(*pooled.shape, seed=3))))
    by = (scale, scale if of == "filters" else 1.0, 1.0 if of == "filters" else scale)
    for one, other, s in zip(*found, by, strict=True):
        assert one.any()
        assert torch.equal(other[0], one[0] * s)
        assert torch.equal(other[1], one[1] * (s if s == 1.0 else 64 * s))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's
def test_what_is_not_a_number_stays_so():
    nan = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)  # as CUDA writes it
    images, weight, bias = grid(2, 2, 4, 4, 5), grid(2, 6, 5, 3, 3).requires_grad_(), grid(2, 6)
    assert apply(images, weight + nan, bias)[0].isnan().all()
    assert apply(images, weight, bias + nan)[0].isnan().all()
    pooled, _ = apply(images, weight, bias)
    (g,) = torch.autograd.grad(pooled, weight, torch.full_like(pooled, nan.item()))
    assert not g.isfinite().any()
    broken = images.clone()
    broken[1, 1, 0, 2, 0] = nan  # two of the four pixels of a window depend on it
    found, _ = apply(broken, weight, bias)
    assert torch.equal(found.isnan(), reference(broken, weight, bias).isnan())
    assert torch.equal(found[~found.isnan()], pooled[~found.isnan()])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's
def test_an_infinite_filter_is_seen():
    images, weight = torch.ones(1, 2, 4, 4, 5), torch.zeros(1, 1, 5, 3, 3)
    weight[0, 0, 0, 1, 1] = torch.inf
    images[0, 1, 0, 2, 0] = 0.0  # 0 times infinity: this pixel of the window is NaN, and is chosen
    pooled, _ = apply(images, weight, torch.zeros(1, 1))
    expected = torch.full_like(pooled, torch.inf)
    expected[0, 1, 0, 1] = torch.nan
    assert torch.equal(pooled.nan_to_num(-1.0), expected.nan_to_num(-1.0))


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_very_small_or_large_slopes_lose_nothing(scale):
    inputs = [grid(2, 3, 8, 8, 5), grid(2, 6, 5, 3, 3, seed=1), grid(2, 6, seed=2)]
    inputs = [values.requires_grad_() for values in inputs]
    slope = grid(2, 3, 4, 4, 6, seed=3)
    found = [torch.autograd.grad(apply(*inputs)[0], inputs, slope * s) for s in (1.0, scale)]
    for one, other in zip(*found, strict=True):
        assert torch.allclose(other / scale, one, rtol=1e-4, atol=1e-3 * float(one.abs().max()))


def test_a_slope_that_relu_stops_does_not_count():
    images, weight, bias = grid(1, 2, 4, 4, 5), grid(1, 6, 5, 3, 3, seed=1).requires_grad_(), grid(1, 6, seed=2)
    pooled, code = apply(images, weight, bias)
    slope = grid(*pooled.shape, seed=3)
    (right,) = torch.autograd.grad(pooled, weight, slope, retain_graph=True)
    (got,) = torch.autograd.grad(pooled, weight, slope.masked_fill(code == 4, 1e9))
    assert right.any()
    assert torch.equal(got, right)


def test_a_client_without_slope_has_no_gradient():
    weight = grid(1, 6, 5, 3, 3, seed=1).requires_grad_()
    pooled, _ = apply(grid(1, 2, 4, 4, 5), weight, grid(1, 6))
    (g,) = torch.autograd.grad(pooled, weight, torch.zeros_like(pooled))
    assert not g.any()


def test_dropout_keeps_its_share_and_differs_by_client_and_seed():
    clients, batch, outs, drop = 2, 40, 8, 0.5
    images, weight = torch.zeros(clients, batch, 8, 8, 1), torch.zeros(clients, outs, 1, 3, 3)
    bias = torch.ones(clients, outs, requires_grad=True)
    pooled, code = apply(images, weight, bias, drop, seed=1)
    assert set(pooled.unique().tolist()) == {0.0, 2.0}
    # The first of the four pixels that was not dropped, or none: 1/2, 1/4, 1/8, 1/16, 1/16.
    share = code.long().flatten().bincount(minlength=5) / code.numel()
    assert torch.allclose(share, torch.tensor([8, 4, 2, 1, 1]) / 16, atol=0.02)
    (g,) = torch.autograd.grad(pooled, bias, torch.ones_like(pooled))
    assert torch.equal(g, (pooled > 0).sum((1, 2, 3)) / (1 - drop))
    assert not torch.equal(code[0], code[1])
    assert not torch.equal(code, apply(images, weight, bias, drop, seed=2)[1])
    assert torch.equal(code, apply(images, weight, bias, drop, seed=1)[1])


def test_gradients_go_through_the_pixels_that_were_kept():
    ins, outs, drop = 5, 6, 0.25
    images, weight, bias = grid(2, 3, 4, 6, ins), grid(2, outs, ins, 3, 3, seed=1), grid(2, outs, seed=2)
    inputs = [tensor.requires_grad_() for tensor in (images, weight, bias)]
    pooled, code = apply(*inputs, drop, seed=3)
    assert len(code.unique()) == 5
    # The pixels that the kernel chose, from torch's convolution.
    zipped = zip(images, weight, bias, strict=True)
    whole = torch.stack([F.conv2d(x.permute(0, 3, 1, 2), w, b, padding=1) for x, w, b in zipped])
    four = whole.unflatten(4, (3, 2)).unflatten(3, (2, 2)).permute(0, 1, 3, 5, 2, 4, 6).flatten(5)
    chosen = four.gather(5, code.long().clamp_max(3)[..., None])[..., 0] * (code < 4) / (1 - drop)
    assert torch.allclose(pooled, chosen, rtol=2**-11, atol=0)
    slope = grid(*pooled.shape, seed=4)
    found, expected = (torch.autograd.grad(value, inputs, slope) for value in (pooled, chosen))
    for got, right in zip(found, expected, strict=True):
        assert (got - right).norm() <= 1e-3 * right.norm()


def task_of(make, shape=(1, 8, 8), clients=3, **options):
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(6, *shape, generator=draw), torch.randint(10, (6,), generator=draw)) for _ in range(clients)]
    return Task(make, F.cross_entropy, data, data[0], **options)


@pytest.fixture
def as_on_cuda(monkeypatch):
    monkeypatch.setattr(networks, "kernels_allowed", lambda device, dtype: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**30))
    monkeypatch.setattr(conv_pool, "_SHARES", {1: 2, 6: 2})  # a GPU's number of programs would take long to interpret


def twin_loss(task, x, inputs, targets):
    """One client's loss layer by layer with the kernels' rounding, so that max pools choose the same pixels."""
    network, values = task.as_network(), inputs
    parameters = {name: stacked[0] for name, stacked in network.parameters(x[None]).items()}
    for name, layer in network.training._modules.items():
        if isinstance(layer, nn.Conv2d):
            weight, bias = rounded(parameters[f"{name}.weight"]), parameters[f"{name}.bias"]
            values = F.conv2d(rounded(values), weight, bias, padding=1)
        elif isinstance(layer, nn.MaxPool2d):
            values = layer(values)
        elif isinstance(layer, nn.Linear):
            values = F.linear(values, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))
        else:
            values = layer(values)
    return task.loss(values, targets)


def both(task, samples=6):
    """The gradients of all clients by our kernels and by the twin."""
    x = torch.stack([task.init(seed) for seed in range(task.n)]).requires_grad_()
    batch = torch.stack([task.batches(0, 0, client, 1, samples)[0] for client in range(task.n)])
    clients = torch.arange(task.n)
    twins = []
    for client in clients:
        (g,) = torch.autograd.grad(twin_loss(task, x[client], *task.samples(batch[client])), x)
        twins.append(g[client] if task.scale is None else g[client] * task.scale[client])
    still = torch.zeros_like(x), torch.tensor(0.0)
    return networks.steps(task)(x.detach(), *still, clients, batch[None]), torch.stack(twins)


@pytest.mark.parametrize("make", [models.mnist_cnn, models.svhn_cnn, models.cifar10_cnn])
def test_the_networks_of_the_paper_are_known(make, as_on_cuda):
    shape = (1, 28, 28) if make is models.mnist_cnn else (3, 32, 32)
    task = task_of(make, shape, clients=2, weights=[0.25, 0.75])
    task.as_network().training.eval()  # no dropout: torch and the kernels draw different masks
    ours, twin = both(task, samples=2)
    assert (ours - twin).norm() <= 1e-3 * twin.norm()
    x = task.init(0)
    found, expected = networks.evaluation(task)(x), task.evaluate(x)
    assert found == pytest.approx(expected, rel=1e-3)
    assert found["train_loss"] != expected["train_loss"]


@pytest.mark.parametrize(("pull", "decay"), [(0.0, 1.0), (0.7, 0.4)], ids=["plain", "pulled"])
def test_steps_move_by_gradient_correction_and_pull(pull, decay, as_on_cuda):
    task = task_of(lambda: nn.Sequential(*block(1, 4), *head(64)), weights=[0.2, 0.5, 0.3])
    start = torch.stack([task.init(seed) for seed in range(task.n)])
    correction = torch.randn(start.shape, generator=torch.Generator().manual_seed(0))
    batches = torch.stack([task.batches(0, 0, client, 3, 4) for client in range(task.n)], dim=1)
    steps, step, clients = networks.steps(task), torch.tensor(0.3), torch.arange(task.n)
    still = torch.zeros_like(start), torch.tensor(0.0)
    before, x, expected = start.clone(), start, torch.zeros_like(start)
    for k in range(3):
        g = steps(x, *still, clients, batches[k : k + 1])
        x, expected = x - 0.3 * (g + correction + pull * (x - before)), decay * expected + g
    scalars = (torch.tensor(pull), torch.tensor(decay)) if pull else ()
    total = steps(start, correction, step, clients, batches, *scalars)
    assert torch.equal(start, before)
    assert torch.allclose(total, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("drop", [0.0, 0.25])
def test_an_activation_goes_back_as_it_went_forward(bias, relu, drop):
    layer = layers.Activation("b" if bias else None, relu, drop)
    values, shift, slope = grid(2, 70, 45), grid(2, 45, seed=1), grid(2, 70, 45, seed=2)  # more than a tile per axis
    out, saved = layer.forward(values, {"b": shift})
    g = {"b": torch.full((2, 45), torch.nan)}
    before = layer.backward(slope, saved, {"b": shift}, g, further=True)
    whole = values + shift[:, None] if bias else values
    plain = whole.relu() if relu else whole
    dropped = (out == 0) & (plain != 0)
    assert abs(float(dropped.sum() / (plain != 0).sum()) - drop) < 0.03
    assert torch.equal(out, torch.where(dropped, 0.0, plain / (1 - drop)))
    passed = (plain > 0) if relu else (plain != 0)  # where a value is zero without ReLU, dropout is invisible
    right = torch.where(dropped, 0.0, slope / (1 - drop))
    assert torch.equal(before[passed], right[passed])
    if relu:
        assert not before[~passed].any()
    if bias:
        assert torch.allclose(g["b"], before.sum(1), rtol=1e-5, atol=1e-5)
    if drop:
        assert not torch.equal(dropped[0], dropped[1])


def test_the_gradient_of_cross_entropy():
    outputs = torch.randn(3, 50, 11, generator=torch.Generator().manual_seed(0)).requires_grad_()
    targets = torch.randint(11, (3, 50), generator=torch.Generator().manual_seed(1))
    loss = sum(F.cross_entropy(o, t) for o, t in zip(outputs * 30, targets, strict=True))
    (expected,) = torch.autograd.grad(loss, outputs)
    assert torch.allclose(layers.cross_entropy_gradient(outputs.detach() * 30, targets) * 30, expected, atol=1e-6)


class Thrice(Task):
    def samples(self, batch):
        inputs, targets = super().samples(batch)
        return 3 * inputs, targets


class Bright(Standardize):
    def __call__(self, x, dtype):
        return super().__call__(x, dtype) + 1


def whole_network():
    return nn.Sequential(*block(1, 4), *head(64))


def more_trained():
    network = whole_network()
    network.register_parameter("a", nn.Parameter(torch.ones(3)))
    return network


def labelled(**options):
    data = [(torch.randn(6, 1, 8, 8), torch.randint(10, (6,))) for _ in range(2)]
    if "label" in options:
        data[0][1][0] = options.pop("label")
    kind = options.pop("kind", Task)
    return kind(options.pop("make", whole_network), options.pop("loss", F.cross_entropy), data, **options)


def smooth(outputs, targets):
    return F.cross_entropy(outputs, targets, label_smoothing=0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"label": -100},
        {"loss": smooth},
        {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)},
        {"kind": Thrice},
        {"prepare": Bright((0.3,), (0.2,))},
        {"prepare": lambda x, dtype: x.to(dtype)},
        {"make": more_trained},
        {"make": lambda: nn.Sequential(*block(1, 10))},
    ],
    ids=lambda options: str(next(iter(options))),
)
def test_tasks_of_other_kinds_are_left_to_torch(options, as_on_cuda):
    assert networks.steps(labelled(**options)) is None


@pytest.mark.parametrize(
    "options", [{}, {"loss": nn.CrossEntropyLoss()}, {"augment": Augment()}, {"prepare": Standardize((0.3,), (0.2,))}]
)
def test_tasks_of_the_usual_kind_are_known(options, as_on_cuda):
    assert networks.steps(labelled(**options)) is not None


def test_test_images_of_other_channels_are_torchs_to_refuse(as_on_cuda):
    task = labelled()
    task.test_data = torch.randn(6, 3, 8, 8), torch.zeros(6, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="channels"):
        networks.evaluation(task)(task.init(0))


@pytest.mark.parametrize("room", [0, 2**30])
@pytest.mark.parametrize("prepare", [None, Standardize((0.3,), (0.2,))])
def test_samples_are_prepared_once_where_they_fit(room, prepare, as_on_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (room, room))
    images = torch.arange(64 * 6).reshape(6, 1, 8, 8)
    data = [(images.float() if prepare is None else images.to(torch.uint8), torch.arange(6))] * 2
    task = Task(partial(nn.Sequential, *block(1, 4), *head(64)), F.cross_entropy, data, prepare=prepare)
    network, cache = task.as_network(), cache_of(task)
    layers, _ = networks._layers(network, network.training)
    samples, batch = networks._samples(network, layers, cache), torch.tensor([[3, 1], [7, 9]])
    assert (samples == task.samples) == (room == 0)
    inputs, targets = task.samples(batch)
    assert torch.equal(samples(batch)[1], targets)
    if room:
        again = networks._samples(network, layers, cache)(batch)[0]
        assert again.images.factors is samples(batch)[0].images.factors
        padded = samples(batch)[0]
        pixels = padded.images.factors[padded.indices].float() * padded.images.unit.view(-1, 1, 1, 1, 1)
        assert torch.equal(pixels[..., 1:9, 1:9, 0], rounded(inputs)[:, :, 0])
        pixels[..., 1:9, 1:9, :] = 0
        assert not pixels.any()


@pytest.mark.parametrize("per_batch", [False, True])
@pytest.mark.parametrize(
    ("channels", "crop", "flip", "fill"),
    [(1, 4, False, None), (1, 4, True, (255,)), (3, 4, True, (250, 3, 128)), (3, 4, False, None), (5, 2, True, None),
     (1, 0, True, None), (3, 0, False, (9, 9, 9)), (3, 1, True, (7,))],
)  # fmt: skip
@pytest.mark.parametrize("prepare", [None, Standardize((0.3,), (0.2,))])
def test_crops_are_those_of_bytes_converted_afterwards(prepare, channels, crop, flip, fill, per_batch, as_on_cuda):
    height, width = 12, 28
    draw = torch.Generator().manual_seed(0)
    # Dark images, none black: the fill colour may be the largest value.
    images = torch.randint(40, 100, (9, channels, height, width), generator=draw, dtype=torch.uint8)
    data = [(images if prepare else images / 8, torch.arange(9))]
    make = partial(nn.Sequential, *block(channels, 4), *head(4 * 6 * 14))
    task = Task(make, F.cross_entropy, data, prepare=prepare, augment=Augment(crop, flip, per_batch, fill))
    batch = torch.stack([task.batches(seed, 0, 0, 1, 5)[0] for seed in range(3)])
    if crop and not per_batch:
        batch[0, :2, 1:3] = torch.tensor([[0, 2 * crop], [2 * crop, 0]])  # two opposite corners
    network = task.as_network()
    samples = networks._samples(network, networks._layers(network, network.training)[0], cache_of(task))
    assert samples != task.samples
    inputs, targets = task.samples(batch)
    found, found_targets = samples(batch)
    assert torch.equal(found_targets, targets)
    assert torch.equal(found.indices, torch.arange(15).view(3, 5))
    assert found.width == width
    unit, largest = found.images.unit, found.images.largest
    assert unit.shape == largest.shape == (3,)
    assert (largest >= inputs.abs().max()).all()
    assert torch.equal(unit, scaled.unit_of(largest))
    # The same unit, which is the set's, as if the images had been converted after the crop.
    expected = conv_pool._padded(inputs.flatten(0, 1), largest, largest.repeat_interleave(5))
    assert found.images.factors.is_contiguous()
    assert torch.equal(found.images.factors, expected.factors)
    outputs = [
        conv_pool.forward(x, grid(3, 4, channels, 3, 3, seed=1), grid(3, 4, seed=2))[0]
        for x in (found, conv_pool.PaddedImages.of_batches(inputs))
    ]
    assert torch.allclose(*outputs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("room", [0, 2**30])
def test_crops_are_taken_from_the_converted_set_where_it_fits(room, as_on_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (room, room))
    made, cropped = [], conv_pool.PaddedImages.cropped
    monkeypatch.setattr(conv_pool.PaddedImages, "cropped", lambda *args: made.append(args[2]) or cropped(*args))
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (12, 1, 8, 8), generator=draw, dtype=torch.uint8)
    data = [(images[i::2], torch.randint(10, (6,), generator=draw)) for i in range(2)]
    options = {"prepare": Standardize((0.3,), (0.2,)), "augment": Augment(2, flip=True, fill=(77,))}
    ours, twin = both(Task(whole_network, F.cross_entropy, data, weights=[0.3, 0.7], **options))
    assert (ours - twin).norm() <= 1e-3 * twin.norm()
    assert made == ([2] if room else [])


def test_training_and_evaluation_share_images_whose_unit_suits_the_fill_colour(as_on_cuda):
    data = [(torch.full((6, 1, 8, 8), 100, dtype=torch.uint8), torch.arange(6))]
    options = {"prepare": Standardize((0.3,), (0.2,)), "augment": Augment(2, fill=(255,))}
    task = OnCpu(whole_network, F.cross_entropy, data, **options)
    bound = bound_task(task, torch.device("cuda"), torch.float32)
    networks.evaluation(bound)(task.init(0))
    assert networks.steps(bound) is not None
    ((_, images),) = cache_of(bound).image_sets
    assert images.images.largest.item() == pytest.approx(0.7 / 0.2)


class OnCpu(Task):
    """Stays on the CPU when it is bound to CUDA."""

    def to(self, device, dtype):
        return super().to(torch.device("cpu"), dtype)


@pytest.mark.parametrize("room", [0, 2**30])
def test_an_evaluation_reads_images_converted_once_where_they_fit(room, as_on_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (room, room))
    monkeypatch.setattr(
        "fedsum.tasks.samples._EVALUATION_BYTES", {"cpu": 4 * (networks._ACTIVATIONS * 64 * 4)}
    )  # four samples per chunk
    made, of_set = [], conv_pool.PaddedImages.of_set
    monkeypatch.setattr(conv_pool.PaddedImages, "of_set", lambda x, fill: made.append(len(x)) or of_set(x, fill))
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (22, 1, 8, 8), generator=draw, dtype=torch.uint8)
    labels = torch.randint(10, (22,), generator=draw)
    make = partial(nn.Sequential, *block(1, 4), *head(64))
    data, prepare = [(images[:13], labels[:13])], Standardize((0.3,), (0.2,))
    task = OnCpu(make, F.cross_entropy, data, (images[13:], labels[13:]), prepare=prepare)
    x = task.init(0)
    for _ in range(2):  # two runs
        bound = bound_task(task, torch.device("cuda"), torch.float32)
        assert networks.evaluation(bound)(x) == pytest.approx(task.evaluate(x), rel=1e-3)
    assert networks.steps(bound) is not None  # training reads the same images
    assert made == ([13, 9] if room else [])
    task.test_data = images[:5], labels[:5]
    bound = bound_task(task, torch.device("cuda"), torch.float32)
    assert networks.evaluation(bound)(x) == pytest.approx(task.evaluate(x), rel=1e-3)


def test_a_preparation_of_ones_own_sees_batches_only(as_on_cuda):
    seen = []

    def prepare(inputs, dtype):
        seen.append(len(inputs))
        return inputs.to(dtype)

    data = [(torch.randn(6, 1, 8, 8), torch.randint(10, (6,)))] * 2
    task = Task(partial(nn.Sequential, *block(1, 4), *head(64)), F.cross_entropy, data, prepare=prepare)
    network = task.as_network()
    layers, _ = networks._layers(network, network.training)
    seen.clear()
    assert networks._converted(network, task.inputs, layers, cache_of(task)) is None
    assert not seen


def block(ins, outs, *between, **options):
    return [nn.Conv2d(ins, outs, 3, **({"padding": 1} | options)), *between, nn.ReLU(), nn.MaxPool2d(2)]


def head(features):
    return [nn.Flatten(), nn.Linear(features, 10)]


def test_a_layer_that_comes_twice(as_on_cuda):
    relu = nn.ReLU()

    def make():
        return nn.Sequential(*block(1, 4), nn.Flatten(), nn.Linear(64, 12, bias=False), relu, nn.Linear(12, 10), relu)

    ours, twin = both(task_of(make))
    assert (ours - twin).norm() <= 1e-3 * twin.norm()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(*block(1, 4, nn.Dropout(0.5)), *head(64)),
        lambda: nn.Sequential(*block(1, 4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10)),
        lambda: nn.Sequential(
            *block(1, 4), nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 10)
        ),
        lambda: nn.Sequential(*block(1, 4), nn.Dropout(0.5), *block(4, 4), *head(16)),
    ],
)
def test_dropout_is_drawn_anew_by_torchs_generator(make, as_on_cuda):
    task = task_of(make)
    x, batch = torch.stack([task.init(0)] * 2), torch.arange(6).expand(1, 2, 6)
    steps, still = networks.steps(task), (torch.zeros_like(x), torch.tensor(0.0), torch.arange(2), batch)
    torch.manual_seed(1)
    one, other = steps(x, *still), steps(x, *still)
    torch.manual_seed(1)
    again = steps(x, *still)
    assert torch.equal(one, again)
    for a, b in [(one, other), (one[0], one[1])]:  # of the same samples
        assert (a - b).norm() > 0.1 * a.norm()
    task.as_network().training.eval()
    without = networks.steps(task)(x, *still)
    assert torch.equal(without[0], without[1])


def tied():
    one = nn.Linear(64, 64)
    return nn.Sequential(*block(1, 4), nn.Flatten(), one, one, nn.Linear(64, 10))


def frozen():
    network = nn.Sequential(*block(1, 4), *head(64))
    network[0].bias.requires_grad_(False)
    return network


def hooked(change):
    network = nn.Sequential(*block(1, 4), *head(64))
    change(network[1])
    return network


UNKNOWN = {
    "no convolution": lambda: nn.Sequential(*head(64)),
    "not sequential": lambda: nn.Linear(8, 10),
    "reflected": lambda: nn.Sequential(*block(1, 4, padding_mode="reflect"), *head(64)),
    "groups": lambda: nn.Sequential(*block(1, 4), *block(4, 4, groups=2), *head(16)),
    "an odd image later on": lambda: nn.Sequential(*block(1, 4), *block(4, 4), *block(4, 4), *block(4, 4), *head(4)),
    "a hook": lambda: hooked(lambda layer: layer.register_forward_hook(lambda layer, inputs, output: 3 * output)),
    "a forward of its own": lambda: hooked(lambda layer: setattr(layer, "forward", torch.tanh)),
    "indices": lambda: nn.Sequential(*block(1, 4)[:2], nn.MaxPool2d(2, return_indices=True), *head(64)),
    "another layer": lambda: nn.Sequential(*block(1, 4), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 10)),
    "tied weights": tied,
    "frozen weights": frozen,
}


OTHERS = {
    "stride": lambda: nn.Sequential(*block(1, 4, stride=2), *head(16)),
    "no padding": lambda: nn.Sequential(*block(1, 4, padding=0), *head(36)),
    "no bias": lambda: nn.Sequential(*block(1, 4, bias=False), *head(64)),
    "too many channels": lambda: nn.Sequential(*block(1, 65), *head(65 * 16)),
    "another pool": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), *head(64)),
    "wider pool": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), *head(16)),
    "no pool": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), *head(256)),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_layers_are_known(make, as_on_cuda):
    """They are no blocks of convolution, ReLU and pool; tests/test_image_layers.py has their gradients."""
    assert networks.steps(task_of(make)) is not None


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_left_to_torch(make, as_on_cuda):
    task = task_of(make)
    assert networks.steps(task) is None
    assert networks.evaluation(task) == task.evaluate


def test_inputs_that_are_not_float_are_left_to_torch(as_on_cuda):
    data = [(torch.ones(6, 1, 8, 8, dtype=torch.int32), torch.zeros(6, dtype=torch.int64))]
    assert networks.steps(Task(lambda: nn.Sequential(*block(1, 4), *head(64)), F.cross_entropy, data)) is None


def test_test_images_of_an_odd_size(as_on_cuda):
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (6,), generator=draw)
    data = [(torch.randn(6, 1, 8, 8, generator=draw), labels)]
    make = partial(nn.Sequential, *block(1, 4), *head(64))
    task = Task(make, F.cross_entropy, data, (torch.randn(6, 1, 9, 9, generator=draw), labels))
    x = task.init(0)
    assert networks.evaluation(task)(x) == pytest.approx(task.evaluate(x), rel=1e-3)


def test_only_where_tf32_on_cuda_was_asked_for():
    task = task_of(lambda: nn.Sequential(*block(1, 4), *head(64)))
    assert networks.steps(task) is None
    assert networks.evaluation(task) == task.evaluate


def test_gradients_and_evaluations_of_ones_own_are_used(as_on_cuda):
    class Gradients(Task):
        def gradients(self, x, clients, batch):
            return x

    class Samples(Task):
        def samples(self, batch):
            return super().samples(batch.flip(-1))

    class Evaluation(Task):
        def evaluate(self, x):
            return {"train_loss": 1.0}

    class Both(Gradients, Evaluation):
        """Our kernels compute neither gradients nor evaluations."""

    class Wrapper:
        def __init__(self, task):
            self.task, self.gradients, self.evaluate = task, task.gradients, task.evaluate

    data = [(torch.randn(6, 1, 8, 8), torch.randint(10, (6,)))]
    kinds = {Task: "both", Gradients: "evaluation", Samples: "evaluation", Evaluation: "steps", Both: "neither"}
    for kind, ours in kinds.items():
        task = kind(lambda: nn.Sequential(*block(1, 4), *head(64)), F.cross_entropy, data)
        assert (networks.steps(task) is not None) == (ours in ("both", "steps"))
        assert (networks.evaluation(task) != task.evaluate) == (ours in ("both", "evaluation"))
        wrapper = Wrapper(task)
        assert networks.steps(wrapper) is None
        assert networks.evaluation(wrapper) == wrapper.evaluate
