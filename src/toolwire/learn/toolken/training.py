"""Train rows of a head on cached hidden states, calibrate its bias, and measure it. The model itself is not needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from safetensors.torch import load, save

from ...ir.errors import ConfigError
from ...ir.value import Value
from ..run_folder import RunFolder, write_atomically
from .head import Calibration, ToolkenHead
from .states import NO_TOOL, StateTable

_CHECKPOINT = "checkpoint.safetensors"
_LOSSES = "losses.json"
_BLOCK = 8192  # rows whose toolken logits are in memory at one time


class ToolkenSettings(Value, frozen=True):
    """Settings of a training. The learning rate falls linearly to zero. `negative_weight` is the weight of a position
    without a call in the mean loss; 0 trains without negatives.

    The states of a model have a large common part, in which a step of the optimiser has more effect than in all other
    directions together. `whitening` from 0 to 1 balances the directions: W_T = V P is trained by V, where P is that power
    of the inverse root of the states' second moments. The head is the product.
    """

    epochs: int = 30  # only the head is trained, on states that are computed once: an epoch takes seconds
    # of AdamW in whitened coordinates; the experiment used 0.01 (docs/experiments/toolkengpt.md)
    learning_rate: float = 3e-3
    batch: int = 256
    weight_decay: float = 0.0  # the experiment used 0.1 with few queries per tool
    negative_weight: float = 1.0
    whitening: float = 0.5  # the best of those compared in docs/experiments/toolkengpt.md
    seed: int = 0

    def check(self) -> None:
        """Raise ConfigError for a value without meaning."""
        if self.epochs < 1 or self.batch < 1:
            raise ConfigError(f"epochs and batch must be positive, got {self.epochs} and {self.batch}")
        for name, value, low, high in (
            ("learning_rate", self.learning_rate, 1e-9, 10),
            ("weight_decay", self.weight_decay, 0, 100),
            ("negative_weight", self.negative_weight, 0, 1000),
            ("whitening", self.whitening, 0, 1),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name} must be from {low} to {high}, got {value}")


class BiasPoint(Value, frozen=True):
    """Precision and recall of calls with a bias. A call is right if a tool is expected there, and it is this tool."""

    bias: float
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


class ToolkenScore(Value, frozen=True):
    """Quality of a head. `accuracy`: share of positions with a call at which the right tool has the highest toolken
    logit; `by_tool`: the same for each tool, with the number of positions. `calls`: the decision between calling and
    writing with the head's bias.
    """

    accuracy: float
    positions: int
    by_tool: dict[str, tuple[float, int]]
    calls: BiasPoint


def train_toolkens(
    head: ToolkenHead,
    table: StateTable,
    settings: ToolkenSettings = ToolkenSettings(),  # noqa: B008  # an immutable value
    *,
    rows: Sequence[int] | None = None,
    run: RunFolder | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[float]:
    """Train the given rows of W_T (default: all) by AdamW and return the mean loss of each epoch.

    The loss is -log p of the right toolken or token over the vocabulary and all toolkens, without the bias. Other rows
    are constants. With `run`, the state after each epoch is stored there, and an interrupted training continues with
    the same result as an uninterrupted one. Raise ConfigError for invalid settings, or if there are no positions.
    """
    settings.check()
    if not len(table.labels):
        raise ConfigError("there are no positions to train on", hint="pass demonstrations with calls")
    chosen = torch.arange(len(head.tools)) if rows is None else torch.tensor(sorted(rows))
    device = head.W_T.weight.device
    table = table.to(device)
    rest = _rest_of_total(head, table, chosen)
    table = table._replace(target=_target_logits(head, table, chosen))
    basis, inverse = _whitening(table.states, settings.whitening)
    table = table._replace(states=table.states @ basis)
    weight = (head.W_T.weight.detach()[chosen.to(device)] @ inverse).requires_grad_(True)
    local = _local_labels(table.labels, chosen, len(head.tools))
    optimiser = torch.optim.AdamW([weight], lr=settings.learning_rate, weight_decay=settings.weight_decay)
    losses = _restore(run, weight, optimiser)
    for epoch in range(len(losses), settings.epochs):
        losses.append(_train_epoch(weight, optimiser, table, rest, local, settings, epoch))
        _store(run, weight, optimiser, losses)
        if progress is not None:
            progress(epoch + 1, settings.epochs)
    with torch.no_grad():
        head.W_T.weight[chosen.to(device)] = weight.detach() @ basis.T
    return losses


def _whitening(states: torch.Tensor, power: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a symmetric matrix that balances the directions of the states, and its inverse."""
    moments = (states.double().T @ states.double()) / len(states)
    values, vectors = torch.linalg.eigh(moments)
    values = values.clamp(min=float(values[-1]) * 1e-7 + 1e-12)
    scale = (values / values.mean()).pow(-power / 2)
    return ((vectors * scale) @ vectors.T).float(), ((vectors / scale) @ vectors.T).float()


def _train_epoch(
    weight: torch.Tensor,
    optimiser: torch.optim.AdamW,
    table: StateTable,
    rest: torch.Tensor,
    local: torch.Tensor,
    settings: ToolkenSettings,
    epoch: int,
) -> float:
    """Train an epoch in a seeded random order, and return the mean loss.

    The learning rate falls linearly over all epochs.
    """
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + epoch)
    order = torch.randperm(len(local), generator=generator).to(local.device)
    steps = math.ceil(len(order) / settings.batch)
    total = torch.zeros((), device=local.device)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * (1 - (epoch + step / steps) / settings.epochs)
        batch = order[step * settings.batch : (step + 1) * settings.batch]
        loss = toolken_loss(weight, table.select(batch), rest[batch], local[batch], settings.negative_weight)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.detach() * len(batch)
    return float(total) / len(order)


def toolken_loss(
    weight: torch.Tensor, table: StateTable, rest: torch.Tensor, local: torch.Tensor, negative_weight: float
) -> torch.Tensor:
    """Return the weighted mean of -log p. `rest`: logsumexp of the vocabulary logits and of the frozen toolkens."""
    logits = table.states @ weight.T
    total = torch.logaddexp(rest, logits.logsumexp(1))
    own = logits.gather(1, local.clamp(min=0)[:, None])[:, 0]
    right = torch.where(local >= 0, own, table.target)
    factors = torch.where(local >= 0, 1.0, negative_weight)
    return ((total - right) * factors).mean()


def _rest_of_total(head: ToolkenHead, table: StateTable, chosen: torch.Tensor) -> torch.Tensor:
    frozen = torch.ones(len(head.tools), dtype=torch.bool)
    frozen[chosen] = False
    if not frozen.any():
        return table.total
    others = head.W_T.weight.detach()[frozen.to(head.W_T.weight.device)]
    found = [(block @ others.T).logsumexp(1) for block in table.states.split(_BLOCK)]
    return torch.logaddexp(table.total, torch.cat(found))


def _target_logits(head: ToolkenHead, table: StateTable, chosen: torch.Tensor) -> torch.Tensor:
    """Return the logit of the right token of each position; for a call of a frozen tool, the logit of its toolken."""
    is_frozen = torch.ones(len(head.tools) + 1, dtype=torch.bool)
    is_frozen[chosen] = is_frozen[NO_TOOL] = False
    rows = is_frozen.to(table.labels.device)[table.labels].nonzero()[:, 0]
    target = table.target.clone()
    weight = head.W_T.weight.detach()
    for part in rows.split(_BLOCK):
        target[part] = (table.states[part] * weight[table.labels[part]]).sum(1)
    return target


def _local_labels(labels: torch.Tensor, chosen: torch.Tensor, count: int) -> torch.Tensor:
    """Return the labels as numbers of the trained rows. A call of a frozen tool is a negative for them."""
    numbers = torch.full((count + 1,), NO_TOOL, dtype=torch.long)
    numbers[chosen] = torch.arange(len(chosen))
    return numbers.to(labels.device)[labels]  # NO_TOOL selects the last entry


def _restore(run: RunFolder | None, weight: torch.Tensor, optimiser: torch.optim.AdamW) -> list[float]:
    """Load the checkpoint into weight and optimiser, and return its losses; an empty list without a checkpoint."""
    if run is None or not run.has(_CHECKPOINT):
        return []
    stored = load((run.path / _CHECKPOINT).read_bytes())
    with torch.no_grad():
        weight.copy_(stored["weight"])
    if "step" in stored:
        state = {"step": stored["step"][0], "exp_avg": stored["exp_avg"], "exp_avg_sq": stored["exp_avg_sq"]}
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": {0: state}, "param_groups": groups})
    return [float(value) for value in stored["losses"]]


def _store(run: RunFolder | None, weight: torch.Tensor, optimiser: torch.optim.AdamW, losses: list[float]) -> None:
    """Write weight, optimiser state and losses to the run folder, if there is one."""
    if run is None:
        return
    state = optimiser.state[weight]
    tensors = {
        "weight": weight.detach(),
        "exp_avg": state["exp_avg"],
        "exp_avg_sq": state["exp_avg_sq"],
        "step": state["step"].reshape(1),
        "losses": torch.tensor(losses, dtype=torch.float64),
    }
    write_atomically(run.path / _CHECKPOINT, save({name: one.cpu().contiguous() for name, one in tensors.items()}))
    run.write_json(_LOSSES, losses)


def _best_tools(head: ToolkenHead, table: StateTable) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the highest toolken logit of each position without the bias, and its tool."""
    with torch.no_grad():
        weight = head.W_T.weight.detach()
        found = [(block.to(weight.device) @ weight.T).max(1) for block in table.states.split(_BLOCK)]
    return torch.cat([one.values for one in found]).cpu(), torch.cat([one.indices for one in found]).cpu()


def calibrate_bias(head: ToolkenHead, table: StateTable) -> Calibration:
    """Find the bias with the highest F1 of calls on a development set, and store it in the head.

    Raises `ConfigError` if the set has no calls.
    """
    values, tools = _best_tools(head, table)
    labels = table.labels.cpu()
    expected = int((labels != NO_TOOL).sum())
    if not expected:
        raise ConfigError("the development set has no calls", hint="pass demonstrations with calls, or a fixed bias")
    margins = (table.best.cpu() - values).double()  # a call happens where the bias is greater
    order = margins.argsort(stable=True)
    right = (tools == labels)[order].cumsum(0).double()
    count = torch.arange(1, len(order) + 1).double()
    f1 = 2 * right / (count + expected)
    ordered = margins[order]
    f1[:-1][ordered[1:] == ordered[:-1]] = -1  # a bias cannot separate equal margins
    best = int(f1.argmax())
    low = float(ordered[best])
    high = float(ordered[best + 1]) if best + 1 < len(ordered) else low + 2.0
    precision, recall = float(right[best] / count[best]), float(right[best] / expected)
    calibration = Calibration((low + high) / 2, precision, recall, float(f1[best]), len(order))
    head.bias, head.calibration = calibration.bias, calibration
    return calibration


def sweep_bias(head: ToolkenHead, table: StateTable, biases: Sequence[float]) -> list[BiasPoint]:
    """Return precision and recall of calls for each bias."""
    values, tools = _best_tools(head, table)
    labels = table.labels.cpu()
    expected = max(int((labels != NO_TOOL).sum()), 1)
    found = []
    for bias in biases:
        calls = values + bias > table.best.cpu()
        right = int((calls & (tools == labels)).sum())
        count = int(calls.sum())
        found.append(BiasPoint(float(bias), right / count if count else 1.0, right / expected))
    return found


def measure_toolkens(head: ToolkenHead, table: StateTable) -> ToolkenScore:
    """Measure a head on positions that it was not trained on."""
    _, tools = _best_tools(head, table)
    labels = table.labels.cpu()
    at_calls = labels != NO_TOOL
    right = (tools == labels) & at_calls
    counts = labels[at_calls].bincount(minlength=len(head.tools))
    hits = labels[right].bincount(minlength=len(head.tools))
    by_tool = {
        name: (float(hits[number]) / int(counts[number]), int(counts[number]))
        for number, name in enumerate(head.names)
        if counts[number]
    }
    positions = int(at_calls.sum())
    return ToolkenScore(
        float(right.sum()) / max(positions, 1), positions, by_tool, sweep_bias(head, table, [head.bias])[0]
    )
