"""Records what attention reads: query, key and value after position encoding, from any Transformers decoder."""

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "longhaul_recorder"


def _refuse_what_is_not_recorded(layer, tokens, options):
    """The file says nothing of these, so whoever reads it would compute plain causal attention instead."""
    window = options.get("sliding_window")
    found = [name for name in ("softcap", "s_aux") if options.get(name) is not None]
    if window is not None and window < tokens:
        found.append(f"sliding_window {window}")
    if found:
        raise ValueError(f"layer {layer} attends with {' and '.join(found)}, but only plain causal layers are captured")


class AttentionRecorder:
    """Registers an attention function that keeps the tensors of the chosen layers and then runs PyTorch's attention.

    `want` maps a layer index to its KV heads (None: all). With `keep_outputs` the attention output is kept too.
    """

    def __init__(self, want, keep_outputs=False):
        self.want, self.keep_outputs = want, keep_outputs
        self.records = {}
        AttentionInterface.register(NAME, self)
        AttentionMaskInterface.register(NAME, sdpa_mask)

    def __call__(self, module, query, key, value, attention_mask, **kwargs):
        if module.layer_idx in self.want:
            _refuse_what_is_not_recorded(module.layer_idx, query.shape[2], kwargs)
        result = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        if module.layer_idx in self.want:
            self._record(module, query, key, value, kwargs.get("scaling"), result[0])
        return result

    def _record(self, module, query, key, value, scaling, output):
        group = query.shape[1] // key.shape[1]
        kv_heads = self.want[module.layer_idx]
        kv_heads = list(range(key.shape[1])) if kv_heads is None else kv_heads
        query_heads = [head * group + member for head in kv_heads for member in range(group)]
        record = {
            "query": query[0, query_heads].transpose(0, 1),
            "key": key[0, kv_heads].transpose(0, 1),
            "value": value[0, kv_heads].transpose(0, 1),
        }
        if self.keep_outputs:
            record["output"] = output[0, :, query_heads]
        record = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in record.items()}
        record["scale"] = float(scaling) if scaling is not None else query.shape[-1] ** -0.5
        self.records[module.layer_idx] = record


def capture(model, token_ids, want, keep_outputs=False):
    """One forward pass over `token_ids` (a list): layer -> {query [T, heads, d], key, value, scale}."""
    recorder = AttentionRecorder(want, keep_outputs)
    model.set_attn_implementation(NAME)
    with torch.inference_mode():
        model(input_ids=torch.tensor([token_ids]), use_cache=False)
    missing = sorted(set(want) - set(recorder.records))
    if missing:
        raise ValueError(f"layers {missing} of {type(model).__name__} never called the attention function")
    return recorder.records
