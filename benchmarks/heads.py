"""Heads that stand on the first layers of a network in the package: what the programs that train them share."""
import copy
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from cpqa.passages.cross_encoders import TokenPair, feed, padded
from cpqa.retrieval.openvino_models import multiply_out, shipped

PAIRS = 48   # rows of a step


class Trunk:
    "The first layers of a network in the package: the numbers of each row of tokens, (tokens, width), in 16 bits."
    def __init__(self, kind: str, reads_at: str):
        import openvino
        model = openvino.Core().read_model(shipped(kind) / 'model.xml')
        multiply_out(model)
        node = next(op for op in model.get_ops() if op.get_friendly_name() == reads_at)
        self.network = openvino.compile_model(openvino.Model([node.output(0)], model.get_parameters()), 'CPU')
        self.inputs = [p.get_friendly_name() for p in model.get_parameters()]

    def read(self, rows: Sequence[TokenPair]) -> list[np.ndarray]:
        found, order = [np.zeros(0)] * len(rows), sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
        for some in (order[i:i + 64] for i in range(0, len(order), 64)):
            said = self.network(feed(padded([rows[i] for i in some]), self.inputs))[0]
            for k, i in enumerate(some): found[i] = said[k, :len(rows[i].ids)].astype(np.float16)
        return found


class Head(torch.nn.Module):
    "Some layers, then first token and mean, then the outputs."
    def __init__(self, layers, outputs: int, width: int = 384):
        super().__init__()
        self.layers, self.drop, self.head = copy.deepcopy(layers), torch.nn.Dropout(.2), torch.nn.Linear(2 * width, outputs)
        for layer in self.layers.modules():
            if isinstance(layer, torch.nn.Dropout): layer.p = 0.1

    def forward(self, hidden, attention_mask):
        there = attention_mask.to(hidden.dtype)
        for layer in self.layers:
            said = layer(hidden, (1 - there)[:, None, None, :] * -1e4)
            hidden = said[0] if isinstance(said, tuple) else said
        mean = (hidden * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        return self.head(self.drop(torch.cat([hidden[:, 0], mean], -1)))


def batch(numbers: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, mask = torch.zeros(len(numbers), max(map(len, numbers)), numbers[0].shape[1]), torch.zeros(len(numbers), max(map(len, numbers)))
    for i, n in enumerate(numbers): hidden[i, :len(n)], mask[i, :len(n)] = torch.from_numpy(n.astype(np.float32)), 1
    return hidden, mask


def trained(head: Head, numbers: Sequence[np.ndarray], loss_of: Callable[[torch.Tensor, np.ndarray], torch.Tensor], epochs: int, told: str,
            body: float = 2e-4, end: float = 1e-3) -> Head:
    "The head, trained on all rows; `loss_of` gets the outputs of some rows and their numbers."
    torch.manual_seed(0)
    rng, step = np.random.RandomState(0), 0
    head.train()
    optimizer = torch.optim.AdamW([{'params': head.layers.parameters(), 'lr': body}, {'params': head.head.parameters(), 'lr': end}])
    steps = epochs * -(-len(numbers) // PAIRS)
    for epoch in range(epochs):
        order = rng.permutation(len(numbers))
        near = [sorted(order[i:i + 40 * PAIRS], key=lambda i: len(numbers[i])) for i in range(0, len(order), 40 * PAIRS)]
        parts, losses = [some[i:i + PAIRS] for some in near for i in range(0, len(some), PAIRS)], []
        for k in rng.permutation(len(parts)):
            rate, step = min(1, (step + 1) / (.06 * steps)) * max(.02, 1 - step / steps), step + 1
            for group, most in zip(optimizer.param_groups, (body, end)): group['lr'] = most * rate
            loss = loss_of(head(*batch([numbers[i] for i in parts[k]])), np.array(parts[k]))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        print(f'{time.process_time():6.0f} s  {told}, epoch {epoch + 1}: loss {np.mean(losses):.3f}', file=sys.stderr, flush=True)
    return head.eval()


def outputs(head: Head, numbers: Sequence[np.ndarray]) -> np.ndarray:
    "What the head says of each row, (n, outputs)."
    out, order = np.zeros((len(numbers), head.head.out_features)), sorted(range(len(numbers)), key=lambda i: len(numbers[i]))
    with torch.inference_mode():
        for some in (order[i:i + 64] for i in range(0, len(order), 64)): out[some] = head(*batch([numbers[i] for i in some])).numpy()
    return out


def _number(node) -> np.ndarray | None:
    "The constant behind a node, its scale multiplied in; None where something else stands there."
    kind, before = node.get_type_name(), [node.input_value(i).get_node() for i in range(node.get_input_size())]
    if kind == 'Constant': return np.asarray(node.data, dtype=np.float32)
    if kind in ('Convert', 'Reshape'): return _number(before[0])
    if kind != 'Multiply': return None
    a, b = map(_number, before)
    return None if a is None or b is None else a * b


def _stored(kind: str) -> dict[str, np.ndarray]:
    "The weights of a network in the package, under the names that transformers gives them, in 32 bits."
    import openvino
    state = {}
    for op in openvino.Core().read_model(shipped(kind) / 'model.xml').get_ordered_ops():
        name, _, what = op.get_friendly_name().partition('/aten::')
        known = [n for i in range(op.get_input_size()) if (n := _number(op.input_value(i).get_node())) is not None]
        first, layer, rest = name.partition('bert.')[2].partition('.layer.')
        place = first + layer + rest.replace('.layer.', '.', 1)   # some networks were traced with a layer in each layer
        if not place or not known: continue
        if what in ('linear/MatMul', 'embedding/Gather'): state[f'{place}.weight'] = known[0]
        elif what in ('linear/Add', 'layer_norm/Add'): state[f'{place}.bias'] = known[0].ravel()
        elif what.startswith('layer_norm/Multiply') and known[0].size > 1: state[f'{place}.weight'] = known[0].ravel()
    return state


def all_layers(kind: str) -> dict:
    "The state of the BERT in a network of the package."
    return {name: torch.tensor(np.array(value)) for name, value in _stored(kind).items() if name.startswith(('embeddings.', 'encoder.'))}


def own_layers(kind: str, first: int):
    "The layers of a network in the package from `first` on, to be trained on, as transformers has them."
    from transformers import BertConfig, BertModel
    state = {name.removeprefix('encoder.layer.'): w for name, w in all_layers(kind).items() if name.startswith('encoder.layer.')}
    n = 1 + max(int(place.split('.')[0]) for place in state)
    layers = BertModel(BertConfig(hidden_size=384, num_hidden_layers=n, num_attention_heads=12, intermediate_size=1536),
                       add_pooling_layer=False).encoder.layer
    layers.load_state_dict(state)
    return layers[first:]
