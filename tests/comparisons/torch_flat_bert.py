"""BERT for masked tokens as PyTorch trains it fastest: what torch_time_to_accuracy.py runs.

Un-padded, FlashAttention for sequences of varying lengths, weights and moments in flat buffers. On a CPU
attention is PyTorch's with a mask.
"""
import torch
import torch.nn.functional as F

from published_parameters import published_parameters
from torch_curve import Schedule

WORDS, WORD_BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"


def join(weights):
    """Query, key and value as one, the vocabulary padded to a multiple of 8, whose padding no softmax
    notices; without the heads of the next sentence."""
    joined = {}
    for name, value in weights.items():
        stem, is_self, part = name.partition(".self.")
        if part.startswith("query"):
            joined[f"{stem}.qkv.{part[6:]}"] = torch.cat(
                [weights[f"{stem}.self.{which}.{part[6:]}"] for which in ("query", "key", "value")])
        elif not is_self and not name.startswith(("bert.pooler", "cls.seq_relationship")):
            joined[name] = value
    rows = -len(joined[WORDS]) % 8
    joined[WORDS] = F.pad(joined[WORDS], (0, 0, 0, rows))
    joined[WORD_BIAS] = F.pad(joined[WORD_BIAS], (0, rows), value=-1e4)
    return joined


class Model:
    def __init__(self, config, longest):
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.epsilon, self.longest = config["layer_norm_eps"], longest
        self.gelu = "none" if config["hidden_act"] == "gelu" else "tanh"  # PyTorch's words

    def norm(self, w, name, x):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], self.epsilon)

    def attention(self, q, k, v, starts):
        if q.is_cuda:
            return torch.ops.aten._flash_attention_forward(
                q, k, v, starts, starts, self.longest, self.longest, 0.0, False, False,
                scale=q.shape[-1] ** -0.5)[0]
        sequence = torch.searchsorted(starts, torch.arange(len(q)), right=True)
        return F.scaled_dot_product_attention(
            *(part.transpose(0, 1) for part in (q, k, v)),
            attn_mask=sequence[:, None] == sequence[None]).transpose(0, 1)

    def sums(self, w, batch, is_training):
        """Loss of the masked tokens, and how many are right, summed up."""
        def dense(name, x):
            return F.linear(x, w[name + ".weight"], w[name + ".bias"])

        x = (F.embedding(batch["ids"], w[WORDS])
             + F.embedding(batch["positions"], w["bert.embeddings.position_embeddings.weight"])
             + F.embedding(batch["segments"], w["bert.embeddings.token_type_embeddings.weight"]))
        x = self.norm(w, "bert.embeddings.LayerNorm", x)
        for layer in range(self.layers):
            name = f"bert.encoder.layer.{layer}"
            qkv = dense(name + ".attention.qkv", x).view(len(x), 3, self.heads, -1)
            y = self.attention(*qkv.unbind(1), batch["starts"]).reshape(x.shape)
            x = self.norm(w, name + ".attention.output.LayerNorm",
                          x + dense(name + ".attention.output.dense", y))
            y = F.gelu(dense(name + ".intermediate.dense", x), approximate=self.gelu)
            x = self.norm(w, name + ".output.LayerNorm", x + dense(name + ".output.dense", y))
        name = "cls.predictions.transform"
        y = F.gelu(dense(name + ".dense", x.index_select(0, batch["masked"])), approximate=self.gelu)
        logits = F.linear(self.norm(w, name + ".LayerNorm", y), w[WORDS], w[WORD_BIAS])
        labels = batch["labels"]  # -100 where there is none
        loss = F.cross_entropy(logits.float(), labels, reduction="sum")
        return loss, None if is_training else (logits.argmax(-1) == labels).sum()


class AdamW:
    """All weights in one buffer: f32 masters and moments, and the model's copies as views."""

    def __init__(self, weights, settings, device, dtype, compiled):
        rules = {name: decays for names, decays in published_parameters(
            settings["optimizer.decay_rule"],
            [name.replace(".qkv.", ".self.query.") for name in weights]).values() for name in names}
        names = sorted(weights, key=lambda name: not rules[name.replace(".qkv.", ".self.query.")])
        self.decayed = sum(weights[name].numel() for name in names
                           if rules[name.replace(".qkv.", ".self.query.")])
        self.master = torch.cat([weights[name].flatten() for name in names]).to(device)
        self.m, self.v = torch.zeros_like(self.master), torch.zeros_like(self.master)
        self.model, self.gradient = self.master.to(dtype, copy=True), self.master.to(dtype, copy=True)
        sizes = [weights[name].numel() for name in names]
        self.leaves = {name: part.view(weights[name].shape).detach().requires_grad_()
                       for name, part in zip(names, self.model.split(sizes))}
        self.parts = [part.view(weights[name].shape)
                      for name, part in zip(names, self.gradient.split(sizes))]
        keys = ("beta_1", "beta_2", "epsilon", "weight_decay", "max_gradient_norm")
        self.numbers = [float(settings["optimizer." + key]) for key in keys]
        self.schedule, self.updates = Schedule(settings), 0
        self.compute = torch.compile(self.formulas, dynamic=False) if compiled else self.formulas

    def formulas(self, gradient, master, m, v, model, scalars):
        beta_1, beta_2, epsilon, decay, limit = self.numbers
        g = gradient.float()
        norm = g.square().sum().sqrt()
        g = g * (limit / (norm + 1e-6)).clamp(max=1) if limit > 0 else g
        m.copy_(beta_1 * m + (1 - beta_1) * g)
        v.copy_(beta_2 * v + (1 - beta_2) * g * g)
        is_decayed = torch.arange(len(master), device=master.device) < self.decayed
        u = m / scalars[1] / ((v / scalars[2]).sqrt() + epsilon)
        master.sub_(scalars[0] * (u + torch.where(is_decayed, decay, 0.0) * master))
        model.copy_(master)
        return norm

    @torch.no_grad()
    def step(self, rate=None):
        """Returns the norm of the gradient and the learning rate."""
        torch._foreach_copy_(self.parts, [leaf.grad for leaf in self.leaves.values()])
        for leaf in self.leaves.values():
            leaf.grad = None
        rate = self.schedule.rate(self.updates) if rate is None else rate
        self.updates += 1
        scalars = torch.tensor([rate] + [1 - beta ** self.updates for beta in self.numbers[:2]],
                               pin_memory=self.master.is_cuda)  # or the copy may wait for the GPU
        norm = self.compute(self.gradient, self.master, self.m, self.v, self.model,
                            scalars.to(self.master.device, non_blocking=True))
        return norm, rate

    def start_over(self):
        self.m.zero_(), self.v.zero_()
        self.updates = 0
