"""The models: tiny configurations with random weights, batches, and plans that cut them.

Each plan comes in two kinds. In one the layers between a cut by columns and the next by rows get
this rank's part as a plain tensor, as the library's own forward can take it where it asks for heads
by ``-1``. In the other ("spread") they get a `DistTensor`, on which that forward indexes and
reshapes as on the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers

import distarray.torch as dt
from distarray import Replicate, Shard

__all__ = ["MODELS", "Entry", "Plan"]

Plan = dict[str, dt.ParallelStyle]

WORDS, SIZE, HEADS, KEPT, HEAD, HIDDEN, LENGTH = 44, 32, 8, 4, 4, 48, 8


class Entry(NamedTuple):
    """One model."""

    #: (dropout) -> the model, in float64
    make: Callable[[float], Any]
    #: (rows, generator) -> keyword arguments of its forward, with labels
    batch: Callable[[int, torch.Generator], dict[str, torch.Tensor]]
    #: Names of lists of modules each of which is a unit of `fully_shard`.
    blocks: tuple[str, ...]
    #: (local) -> the plan of tensor parallelism
    plan: Callable[[bool], Plan]
    #: () -> the plan of sequence parallelism; None where it makes no sense
    sequence: Callable[[], Plan] | None = None
    generates: bool = False
    #: Has norms over the batch, so that parts of it are normalized each by itself.
    by_batch: bool = False
    #: Its attention drops by a function, which draws for the heads that it is given.
    functional: bool = False
    #: Its plan has layers that hand out distributed tensors in any case.
    mixed: bool = False


def cut_linears(first: list[str], second: list[str], local: bool, heads: int = 1) -> Plan:
    """Layers cut by columns, then by rows."""
    plan: Plan = {
        name: dt.ColwiseParallel(use_local_output=local, multiple_of=heads) for name in first
    }
    return plan | {name: dt.RowwiseParallel(multiple_of=heads) for name in second}


def words(rows: int, draw: torch.Generator) -> dict[str, torch.Tensor]:
    text = torch.randint(1, WORDS, (rows, LENGTH), generator=draw)
    return {"input_ids": text, "labels": text.clone()}


def padded(rows: int, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """A text whose last words are padding."""
    text = torch.randint(1, WORDS, (rows, LENGTH), generator=draw)
    mask = torch.ones_like(text)
    mask[:, -2:] = 0
    return {"input_ids": text, "attention_mask": mask}


def between(rows: int, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Of T5: a text and another."""
    labels = torch.randint(1, WORDS, (rows, LENGTH - 2), generator=draw)
    return {**padded(rows, draw), "labels": labels}


def classes(rows: int, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Of BERT: a text and its class."""
    labels = torch.randint(0, 3, (rows,), generator=draw)
    return {**padded(rows, draw), "labels": labels}


def pictures(rows: int, draw: torch.Generator) -> dict[str, torch.Tensor]:
    pixels = torch.randn(rows, 3, 16, 16, generator=draw, dtype=torch.float64)
    return {"pixel_values": pixels, "labels": torch.randint(0, 3, (rows,), generator=draw)}


# -- Llama and Mixtral -------------------------------------------------------------------------


def llama(dropout: float) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=SIZE,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KEPT,
        max_position_embeddings=64,
        attention_dropout=dropout,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).double()


def mixtral(dropout: float) -> Any:
    config = transformers.MixtralConfig(
        vocab_size=WORDS,
        hidden_size=SIZE,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KEPT,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        attention_dropout=dropout,
        sliding_window=None,
        experts_implementation="eager",  # the grouped product of torch has no float64
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return transformers.MixtralForCausalLM(config).double()


def head(local: bool) -> dt.ParallelStyle:
    """The logits: whole on every rank, or cut by words."""
    if local:
        return dt.ColwiseParallel(output_layouts=Replicate())
    return dt.ColwiseParallel(use_local_output=False)


def attention_plan(local: bool) -> Plan:
    where = "model.layers.*.self_attn."
    plan = cut_linears([where + "[qkv]_proj"], [where + "o_proj"], local, HEAD)
    return plan | {"model.embed_tokens": dt.RowwiseParallel(), "lm_head": head(local)}


def llama_plan(local: bool) -> Plan:
    where = "model.layers.*.mlp."
    names = [where + "gate_proj", where + "up_proj"]
    return attention_plan(local) | cut_linears(names, [where + "down_proj"], local)


def whole_inputs(*names: str) -> dt.ParallelStyle:
    """Inputs by keyword that come in cut by tokens, and are wanted whole."""
    return dt.PrepareModuleInput(
        input_kwarg_layouts=dict.fromkeys(names, Shard(1)),
        desired_input_kwarg_layouts=dict.fromkeys(names, Replicate()),
        use_local_output=True,
    )


def whole_input() -> dt.ParallelStyle:
    """The same for the one positional argument."""
    return dt.PrepareModuleInput(
        input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=True
    )


def by_tokens(plan: Plan) -> Plan:
    """The same plan with what layers give cut by tokens, as distributed tensors."""
    multiples = {name: getattr(style, "multiple_of", 1) for name, style in plan.items()}
    return {
        name: dt.RowwiseParallel(
            output_layouts=Shard(1), use_local_output=False, multiple_of=multiples[name]
        )
        if isinstance(style, dt.RowwiseParallel)
        else style
        for name, style in plan.items()
    }


def attention_sequence() -> Plan:
    return by_tokens(attention_plan(True)) | {
        "model.layers.*.input_layernorm": dt.SequenceParallel(),
        "model.layers.*.self_attn": whole_inputs("hidden_states"),
        "model.layers.*.post_attention_layernorm": dt.SequenceParallel(),
        "model.norm": dt.SequenceParallel(),
        "lm_head": dt.ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }


def llama_sequence() -> Plan:
    plan = by_tokens(llama_plan(True)) | attention_sequence()
    return plan | {"model.layers.*.mlp": whole_input()}


def mixtral_plan(local: bool) -> Plan:
    """Attention by heads, and each expert whole on one rank."""
    return attention_plan(local) | {"model.layers.*.mlp.experts": dt.ExpertParallel()}


def mixtral_sequence() -> Plan:
    """Tokens go to the ranks of their experts, and back."""
    own = dt.PrepareModuleInputOutput(
        input_layouts=Shard(1),
        desired_input_layouts=Shard(1),
        use_local_input=True,
        output_layouts=Shard(1),
        desired_output_layouts=Shard(1),
        use_local_output=False,
    )
    return attention_sequence() | {
        "model.layers.*.mlp": own,
        "model.layers.*.mlp.gate": dt.SequenceParallel(sequence_dim=0, use_local_output=True),
        "model.layers.*.mlp.experts": dt.ExpertParallel(input_layouts=Shard(0)),
    }


# -- GPT-2 -------------------------------------------------------------------------------------


def gpt2(dropout: float) -> Any:
    config = transformers.GPT2Config(
        vocab_size=WORDS,
        n_embd=SIZE,
        n_layer=2,
        n_head=HEADS,
        n_positions=64,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return transformers.GPT2LMHeadModel(config).double()


def gpt2_plan(local: bool) -> Plan:
    """Queries, keys and values come from one layer, and are parted by their places."""
    where = "transformer.h.*."
    plan = cut_linears([where + "attn.c_attn"], [where + "attn.c_proj"], False)
    plan |= cut_linears([where + "mlp.c_fc"], [where + "mlp.c_proj"], local)
    return plan | {"transformer.wte": dt.RowwiseParallel(), "lm_head": head(local)}


def gpt2_sequence() -> Plan:
    where = "transformer.h.*."
    return by_tokens(gpt2_plan(True)) | {
        "transformer.wpe": dt.RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        "transformer.drop": dt.SequenceParallel(),
        where + "ln_[12]": dt.SequenceParallel(),
        where + "attn": whole_input(),
        where + "attn.resid_dropout": dt.SequenceParallel(),
        where + "mlp": whole_input(),
        where + "mlp.dropout": dt.SequenceParallel(),
        "transformer.ln_f": dt.SequenceParallel(),
        "lm_head": dt.ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }


# -- BERT, ViT, T5, ResNet ---------------------------------------------------------------------


def bert(dropout: float) -> Any:
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=SIZE,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
    )
    return transformers.BertForSequenceClassification(config).double()


def bert_plan(local: bool) -> Plan:
    where = "bert.encoder.layer.*."
    names = [where + f"attention.self.{name}" for name in ("query", "key", "value")]
    plan = cut_linears(names, [where + "attention.output.dense"], local, HEAD)
    plan |= cut_linears([where + "intermediate.dense"], [where + "output.dense"], local)
    return plan | {
        "bert.embeddings.word_embeddings": dt.RowwiseParallel(),
        "bert.pooler.dense": dt.ColwiseParallel(output_layouts=Replicate()),
        "classifier": dt.RowwiseParallel(input_layouts=Replicate()),
    }


def bert_sequence() -> Plan:
    where = "bert.encoder.layer.*."
    token = dt.RowwiseParallel(output_layouts=Shard(1), use_local_output=False)
    return by_tokens(bert_plan(True)) | {
        "bert.embeddings.position_embeddings": token,
        "bert.embeddings.token_type_embeddings": token,
        "bert.embeddings.LayerNorm": dt.SequenceParallel(),
        "bert.embeddings.dropout": dt.SequenceParallel(),
        where + "attention.self": whole_input(),
        where + "attention.output.dropout": dt.SequenceParallel(),
        where + "attention.output.LayerNorm": dt.SequenceParallel(),
        where + "intermediate": whole_input(),
        where + "output.dropout": dt.SequenceParallel(),
        where + "output.LayerNorm": dt.SequenceParallel(),
        "bert.pooler": whole_input(),
        "bert.pooler.dense": dt.ColwiseParallel(output_layouts=Replicate()),
        "classifier": dt.RowwiseParallel(input_layouts=Replicate()),
    }


def vit(dropout: float) -> Any:
    config = transformers.ViTConfig(
        hidden_size=SIZE,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
        image_size=16,
        patch_size=8,
        num_labels=3,
    )
    return transformers.ViTForImageClassification(config).double()


def vit_plan(local: bool) -> Plan:
    where = "vit.layers.*."
    plan = cut_linears([where + "attention.[qkv]_proj"], [where + "attention.o_proj"], local, HEAD)
    plan |= cut_linears([where + "mlp.fc1"], [where + "mlp.fc2"], local)
    return plan | {"classifier": dt.ColwiseParallel(output_layouts=Replicate())}


def t5(dropout: float) -> Any:
    config = transformers.T5Config(
        vocab_size=WORDS,
        d_model=SIZE,
        d_kv=HEAD,
        d_ff=HIDDEN,
        num_layers=2,
        num_heads=HEADS,
        dropout_rate=dropout,
        eos_token_id=None,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config).double()


def t5_plan(local: bool) -> Plan:
    """Attention between texts makes zeros for all heads: its layers hand on the whole."""
    plan: Plan = {}
    for stack in ("encoder", "decoder"):
        where = f"{stack}.block.*.layer.*."
        plan |= cut_linears(
            [where + "SelfAttention.[qkv]"], [where + "SelfAttention.o"], local, HEAD
        )
        plan |= cut_linears([where + "DenseReluDense.wi"], [where + "DenseReluDense.wo"], local)
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        plan[bias] = dt.ColwiseParallel(use_local_output=local)
        plan[f"{stack}.embed_tokens"] = dt.RowwiseParallel()
    where = "decoder.block.*.layer.1.EncDecAttention."
    plan |= cut_linears([where + "[qkv]"], [where + "o"], False, HEAD)
    return plan | {"shared": dt.RowwiseParallel(), "lm_head": head(local)}


def resnet(dropout: float) -> Any:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic", num_labels=3
    )
    return transformers.ResNetForImageClassification(config).double()


def resnet_plan(local: bool) -> Plan:
    return {"classifier.1": dt.ColwiseParallel(output_layouts=Replicate())}


MODELS: dict[str, Entry] = {
    "Llama": Entry(
        llama,
        words,
        ("model.layers",),
        llama_plan,
        llama_sequence,
        generates=True,
        functional=True,
    ),
    "GPT-2": Entry(gpt2, words, ("transformer.h",), gpt2_plan, gpt2_sequence, generates=True),
    "Mixtral": Entry(
        mixtral,
        words,
        ("model.layers",),
        mixtral_plan,
        mixtral_sequence,
        generates=True,
        functional=True,
    ),
    "BERT": Entry(bert, classes, ("bert.encoder.layer",), bert_plan, bert_sequence),
    "ViT": Entry(vit, pictures, ("vit.layers",), vit_plan),
    "T5": Entry(
        t5,
        between,
        ("encoder.block", "decoder.block"),
        t5_plan,
        generates=True,
        functional=True,
        mixed=True,
    ),
    "ResNet": Entry(resnet, pictures, ("resnet.encoder.stages",), resnet_plan, by_batch=True),
}
