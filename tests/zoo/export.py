# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Architectures of torchvision, transformers and timm with random weights, exported by torch.onnx.export.

    python tests/zoo/export.py FOLDER [NAME ...]

writes FOLDER/NAME/model.onnx, its inputs beside it (INPUT.npy) and export.json: which exporter wrote it, how many
nodes, or why there is none. Each export is a process of its own, of at most five minutes. The exporter is the one
that PyTorch takes by default (dynamo); where that fails, the older one. An export that is there is not made again.

Nothing is downloaded. Statistics of batch normalisations are those of a random batch, so that values stay in the range
that a trained model has.
"""
from __future__ import annotations

import collections
import json
import multiprocessing
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import onnx
import timm
import torch
import torchvision
import transformers
from torch import nn

SECONDS = 300
VOCABULARY, TOKENS = 500, 16


class First(nn.Module):
    """A model that takes tensors by name and gives the first of its results."""

    def __init__(self, model: nn.Module, **fixed):
        super().__init__()
        self.model, self.fixed = model, fixed

    def first(self, **inputs):
        result = self.model(**inputs, **self.fixed)
        return next(iter(result.values())) if isinstance(result, dict) else (
            result[0] if isinstance(result, tuple) else result)


class Pixels(First):
    def forward(self, pixel_values):
        return self.first(pixel_values=pixel_values)


class Image(First):
    """A model of torchvision or timm, whose one input has no common name."""

    def forward(self, image):
        result = self.model(image)
        return result["out"] if isinstance(result, dict) else result


class Text(First):
    def forward(self, input_ids, attention_mask):
        return self.first(input_ids=input_ids, attention_mask=attention_mask)


class Tokens(First):
    def forward(self, input_ids):
        return self.first(input_ids=input_ids)


class Spectrum(First):
    def forward(self, input_features):
        return self.first(input_features=input_features)


class Sound(First):
    def forward(self, input_values):
        return self.first(input_values=input_values)


def image(size: int):
    return {"image": torch.randn(1, 3, size, size)}


def pixels(size: int):
    return {"pixel_values": torch.randn(1, 3, size, size)}


def tokens():
    return {"input_ids": torch.randint(3, VOCABULARY, (1, TOKENS))}


def text():
    mask = torch.ones(1, TOKENS, dtype=torch.int64)
    mask[0, -3:] = 0  # padding
    return {**tokens(), "attention_mask": mask}


Recipe = collections.namedtuple("Recipe", "make inputs")
RECIPES: dict[str, Recipe] = {}


def vision(name: str, size: int, **options):
    def make():
        return Image(torchvision.models.get_model(name, weights=None, **options))
    RECIPES[name] = Recipe(make, lambda: image(size))


def segmentation(name: str, size: int):
    def make():
        return Image(torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=21))
    RECIPES[name] = Recipe(make, lambda: image(size))


def small_image(name: str, size: int, **options):
    """A model of timm."""
    RECIPES[name] = Recipe(lambda: Image(timm.create_model(name, pretrained=False, **options)), lambda: image(size))


def face(name: str, wrapper, inputs, model: str, config: str, fixed=None, **options):
    """A model of transformers from a small configuration."""
    def make():
        configuration = getattr(transformers, config)(**options)
        return wrapper(getattr(transformers, model)(configuration), **(fixed or {}))
    RECIPES[name] = Recipe(make, inputs)


for architecture, extent in {
        "alexnet": 224, "vgg11": 64, "resnet18": 96, "resnet50": 96, "resnext50_32x4d": 64, "wide_resnet50_2": 64,
        "squeezenet1_1": 96, "densenet121": 64, "mobilenet_v2": 96, "mobilenet_v3_small": 96, "mnasnet0_5": 96,
        "shufflenet_v2_x0_5": 96, "efficientnet_b0": 96, "regnet_y_400mf": 96, "convnext_tiny": 64, "swin_t": 64,
}.items():
    vision(architecture, extent)
vision("googlenet", 96, init_weights=True, aux_logits=False)
vision("inception_v3", 128, init_weights=True, aux_logits=False)
for architecture in ("deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large"):
    segmentation(architecture, 64)
RECIPES["vit_b_16"] = Recipe(lambda: Image(torchvision.models.VisionTransformer(
    image_size=64, patch_size=16, num_layers=3, num_heads=4, hidden_dim=128, mlp_dim=256, num_classes=100)),
    lambda: image(64))
RECIPES["maxvit_t"] = Recipe(lambda: Image(torchvision.models.MaxVit(
    input_size=(64, 64), stem_channels=16, partition_size=4, block_channels=[32, 64], block_layers=[1, 1],
    head_dim=16, stochastic_depth_prob=0.0, num_classes=100)), lambda: image(64))

BERT = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "max_position_embeddings": 64}
DECODER = {**BERT, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**DECODER, "num_key_value_heads": 2}
NO_CACHE = {"use_cache": False}
face("bert", Text, text, "BertModel", "BertConfig", **BERT)
face("distilbert", Text, text, "DistilBertModel", "DistilBertConfig", vocab_size=VOCABULARY, dim=64, n_layers=2,
     n_heads=4, hidden_dim=128, max_position_embeddings=64)
face("roberta", Text, text, "RobertaModel", "RobertaConfig", **BERT)
face("albert", Text, text, "AlbertModel", "AlbertConfig", embedding_size=32, **BERT)
face("electra", Text, text, "ElectraModel", "ElectraConfig", embedding_size=32, **BERT)
face("gpt2", Text, text, "GPT2LMHeadModel", "GPT2Config", NO_CACHE, vocab_size=VOCABULARY, n_positions=64, n_embd=64,
     n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
face("gpt_neox", Text, text, "GPTNeoXForCausalLM", "GPTNeoXConfig", NO_CACHE, **DECODER)
face("opt", Text, text, "OPTForCausalLM", "OPTConfig", NO_CACHE, vocab_size=VOCABULARY, hidden_size=64,
     num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, max_position_embeddings=64, word_embed_proj_dim=64)
for family in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Phi"):
    face(family.lower(), Text, text, f"{family}ForCausalLM", f"{family}Config", NO_CACHE,
         **GROUPED, **({"head_dim": 16} if family in ("Qwen3", "Gemma", "Mistral") else {}))
face("mixtral", Text, text, "MixtralForCausalLM", "MixtralConfig", NO_CACHE, num_local_experts=4,
     num_experts_per_tok=2, experts_implementation="batched_mm",  # the default, grouped_mm, cannot be exported
     **GROUPED)
face("falcon", Text, text, "FalconForCausalLM", "FalconConfig", NO_CACHE, vocab_size=VOCABULARY, hidden_size=64,
     num_hidden_layers=2, num_attention_heads=4, bos_token_id=1, eos_token_id=2, pad_token_id=0)
face("mamba", Tokens, tokens, "MambaForCausalLM", "MambaConfig", NO_CACHE, vocab_size=VOCABULARY, hidden_size=32,
     num_hidden_layers=2, state_size=8, bos_token_id=1, eos_token_id=2, pad_token_id=0)
face("t5_encoder", Text, text, "T5EncoderModel", "T5Config", NO_CACHE, vocab_size=VOCABULARY, d_model=64, d_kv=16,
     d_ff=128, num_layers=2, num_heads=4)


class Encoder(nn.Module):
    """The encoder of a model of two halves."""

    def __init__(self, configuration, model):
        super().__init__()
        self.encoder = getattr(transformers, model)(configuration).get_encoder()

    def forward(self, **inputs):
        return self.encoder(**inputs)


RECIPES["bart_encoder"] = Recipe(lambda: Text(Encoder(transformers.BartConfig(
    vocab_size=VOCABULARY, d_model=64, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=64),
    "BartModel")), text)
RECIPES["whisper_encoder"] = Recipe(lambda: Spectrum(Encoder(transformers.WhisperConfig(
    vocab_size=VOCABULARY, num_mel_bins=40, d_model=64, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=50,
    bos_token_id=1, eos_token_id=2, pad_token_id=0, decoder_start_token_id=1, suppress_tokens=None,
    begin_suppress_tokens=None), "WhisperModel")), lambda: {"input_features": torch.randn(1, 40, 100)})
SMALL_IMAGE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
               "image_size": 64, "patch_size": 16}
face("vit", Pixels, lambda: pixels(64), "ViTForImageClassification", "ViTConfig", **SMALL_IMAGE)
face("deit", Pixels, lambda: pixels(64), "DeiTModel", "DeiTConfig", **SMALL_IMAGE)
face("swin", Pixels, lambda: pixels(64), "SwinModel", "SwinConfig", image_size=64, patch_size=4, embed_dim=32,
     depths=[2, 2], num_heads=[2, 4], window_size=4)
face("segformer", Pixels, lambda: pixels(64), "SegformerForSemanticSegmentation", "SegformerConfig",
     depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=64)
face("clip_vision", Pixels, lambda: pixels(64), "CLIPVisionModel", "CLIPVisionConfig", **SMALL_IMAGE)
face("clip_text", Text, text, "CLIPTextModel", "CLIPTextConfig", eos_token_id=2, bos_token_id=1, pad_token_id=0, **BERT)
face("wav2vec2", Sound, lambda: {"input_values": torch.randn(1, 4000)}, "Wav2Vec2Model", "Wav2Vec2Config",
     vocab_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
     conv_dim=(32,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)

small_image("mixer_s32_224", 64, img_size=64)
small_image("gmlp_ti16_224", 64, img_size=64)
small_image("poolformer_s12", 64)
small_image("ghostnet_050", 96)
small_image("resmlp_12_224", 64, img_size=64)
small_image("xcit_nano_12_p16_224", 64)


def settle(model: nn.Module, inputs) -> None:
    """Statistics of batch normalisations as of a random batch."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d)
    norms = [module for module in model.modules() if isinstance(module, kinds)]
    if norms:
        for module in norms:
            module.momentum = 1.0
        model.train()
        with torch.no_grad():
            model(**{name: torch.randn(4, *value.shape[1:]) for name, value in inputs.items()})
    model.eval()


def fill(model: nn.Module) -> None:
    """Weights that are zero before training (the last layer, as a rule) would hide all that comes before them."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, std=module.in_features**-0.5)


def write(name: str, folder: Path) -> dict:
    """Exports one; what it came to."""
    torch.manual_seed(20261122)
    recipe = RECIPES[name]
    model, inputs = recipe.make(), recipe.inputs()
    fill(model)
    settle(model, inputs)
    failures = []
    for exporter, dynamo in (("dynamo", True), ("torchscript", False)):
        try:
            if dynamo:
                torch.onnx.export(model, (), str(folder / "model.onnx"), kwargs=inputs, dynamo=True, verbose=False)
            else:
                torch.onnx.export(model, tuple(inputs.values()), str(folder / "model.onnx"), dynamo=False,
                                  input_names=list(inputs), opset_version=17)
        except Exception as failure:  # pylint: disable=broad-except  (of whatever kind an exporter raises)
            failures.append(f"{exporter}: {type(failure).__name__}: {str(failure)[:300]}")
            traceback.print_exc()
            continue
        graph = onnx.load(str(folder / "model.onnx"), load_external_data=False).graph
        taken = {value.name for value in graph.input}
        for key, value in inputs.items():
            if key in taken:
                np.save(folder / f"{key}.npy", value.numpy())
        return {"name": name, "exporter": exporter, "nodes": len(graph.node), "failures": failures,
                "operators": dict(collections.Counter(node.op_type for node in graph.node))}
    return {"name": name, "exporter": None, "failures": failures}


def alone(name: str, folder: Path) -> None:
    """What a child does: the record is the last that it writes."""
    torch.set_num_threads(1)
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        sys.stdout = sys.stderr = log
        try:
            record = write(name, folder)
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            record = {"name": name, "exporter": None, "failures": [traceback.format_exc()[-400:]]}
    (folder / "export.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-") or set(sys.argv[2:]) - set(RECIPES):
        print(__doc__, "Names:", *RECIPES, file=sys.stderr)
        return 2
    # Children take the libraries as they are loaded here, which takes longer than most exports.
    processes = multiprocessing.get_context("fork")
    for name in sys.argv[2:] or RECIPES:
        folder = Path(sys.argv[1]) / name
        if (folder / "export.json").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        child = processes.Process(target=alone, args=(name, folder))
        child.start()
        child.join(SECONDS)
        if child.is_alive():
            child.kill()
            child.join()
        record = {"name": name, "exporter": None, "failures": [f"killed or crashed, exit code {child.exitcode}"]}
        if (folder / "export.json").exists():
            record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        else:
            (folder / "export.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {record['exporter']}, {record.get('nodes', 0)} nodes, {time.monotonic() - begin:.0f} s "
              f"{' '.join(record['failures'])[:200]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
