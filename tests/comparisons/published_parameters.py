"""The parameters that the published BERT codes give their optimizer, and which of them it decays.

A LAMB update has one trust ratio per parameter, so the result depends on where a code cuts its
weights. Written from those codes, not from Bertha:

    reference     MLPerf's TensorFlow code, and Hugging Face: query, key and value are three layers
    nvidia_fmha   NVIDIA v2.0 to v4.0 without TransformerEngine: Wq, Wk, Wv, Bq, Bk, Bv
    nvidia_te     NVIDIA v3.0 to v4.0 with TransformerEngine: qkv_weight, qkv_bias
    baidu         Baidu v2.0: Wqkv, Bqkv

Each excludes parameters from decay and trust ratio by a search in their names, so the names count.
"""
import re

EXCLUDED = {
    "reference": r"LayerNorm|layer_norm|bias",
    "nvidia_fmha": r"bias|gamma|beta|LayerNorm",
    "nvidia_te": r"bias|gamma|beta|LayerNorm",
    "baidu": r"bias|norm",
}
RULES = tuple(EXCLUDED)

_QKV = r"attention\.self\.(query|key|value)\.(weight|bias)$"
_LAYER_NORM = r"(attention\.output|\d+\.output)\.LayerNorm\.(weight|bias)$"


def published_name(rule, name):
    """The parameter of a published code that the Hugging Face tensor `name` belongs to."""
    qkv, norm = re.search(_QKV, name), re.search(_LAYER_NORM, name)
    if rule == "nvidia_fmha" and qkv:
        return name[:qkv.start()] + "fmha." + {"weight": "W", "bias": "B"}[qkv[2]] + qkv[1][0]
    if rule == "nvidia_te":
        if qkv:
            return name[:qkv.start()] + f"fp8_mha.qkv_{qkv[2]}"
        if norm and norm[1] == "attention.output":
            return name[:norm.start()] + f"layernorm_mlp.layer_norm_{norm[2]}"
    if rule == "baidu":
        if qkv:
            return name[:qkv.start()] + "fmha." + {"weight": "Wqkv", "bias": "Bqkv"}[qkv[2]]
        if norm:
            return name[:norm.start()] + f"{norm[1]}.fused_dropout_add_ln.{norm[2]}"
        return name.replace("LayerNorm", "layer_norm")
    return name


def published_parameters(rule, names):
    """{parameter: (its tensors under Hugging Face's names, whether it is decayed)}."""
    parameters = {}
    for name in names:
        published = published_name(rule, name)
        decayed = re.search(EXCLUDED[rule], published) is None
        parameters.setdefault(published, ([], decayed))[0].append(name)
    return parameters
