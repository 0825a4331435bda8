"""Heads that stand on the first layers of a network in the package: what the programs that train them share."""
import copy
from pathlib import Path

import numpy as np
import torch

from cpqa.retrieval.openvino_models import shipped


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


def _number(node) -> np.ndarray | None:
    "The constant behind a node, its scale multiplied in; None where something else stands there."
    kind, before = node.get_type_name(), [node.input_value(i).get_node() for i in range(node.get_input_size())]
    if kind == 'Constant': return np.asarray(node.data, dtype=np.float32)
    if kind in ('Convert', 'Reshape'): return _number(before[0])
    if kind != 'Multiply': return None
    a, b = map(_number, before)
    return None if a is None or b is None else a * b


def _stored(kind: str, folder: Path | None = None) -> dict[str, np.ndarray]:
    "The weights of a network in the package, or in a folder, under the names that transformers gives them, in 32 bits."
    import openvino
    state = {}
    for op in openvino.Core().read_model((folder or shipped(kind)) / 'model.xml').get_ordered_ops():
        name, _, what = op.get_friendly_name().partition('/aten::')
        known = [n for i in range(op.get_input_size()) if (n := _number(op.input_value(i).get_node())) is not None]
        inside = name.partition('bert.')[2] or name.partition('__module.')[2]   # a head has no BERT around it
        first, layer, rest = inside.partition('.layer.')
        place = first + layer + rest.replace('.layer.', '.', 1)   # some networks were traced with a layer in each layer
        if not place or not known: continue
        if what in ('linear/MatMul', 'embedding/Gather'): state[f'{place}.weight'] = known[0]
        elif what in ('linear/Add', 'layer_norm/Add'): state[f'{place}.bias'] = known[0].ravel()
        elif what.startswith('layer_norm/Multiply') and known[0].size > 1: state[f'{place}.weight'] = known[0].ravel()
    return state


def all_layers(kind: str) -> dict:
    "The state of the BERT in a network of the package."
    return {name: torch.tensor(np.array(value)) for name, value in _stored(kind).items() if name.startswith(('embeddings.', 'encoder.'))}


def stored_network(kind: str, folder: Path | None = None) -> dict:
    "The state of a whole network in the package, or in a folder: BERT under its name, and what stands around it."
    place = lambda name: f'bert.{name}' if name.startswith(('embeddings.', 'encoder.')) else name
    return {place(name): torch.tensor(np.array(value)) for name, value in _stored(kind, folder).items()}


def stored_head(kind: str) -> dict:
    "The state of a `Head` in a network of the package."
    return {name: torch.tensor(np.array(value)) for name, value in _stored(kind).items() if name.startswith(('layers.', 'head.'))}


def own_layers(kind: str, first: int):
    "The layers of a network in the package from `first` on, to be trained on, as transformers has them."
    from transformers import BertConfig, BertModel
    state = {name.removeprefix('encoder.layer.'): w for name, w in all_layers(kind).items() if name.startswith('encoder.layer.')}
    n = 1 + max(int(place.split('.')[0]) for place in state)
    layers = BertModel(BertConfig(hidden_size=384, num_hidden_layers=n, num_attention_heads=12, intermediate_size=1536),
                       add_pooling_layer=False).encoder.layer
    layers.load_state_dict(state)
    return layers[first:]


def above(kind: str, first: int) -> dict:
    "The state of a `Head` in the package on `first` layers of another network, named as a BERT that holds both."
    place = lambda n, rest: f'bert.encoder.layer.{int(n) + first}.{rest}'
    return {name if name.startswith('head.') else place(*name.removeprefix('layers.').split('.', 1)): w
            for name, w in stored_head(kind).items()}
