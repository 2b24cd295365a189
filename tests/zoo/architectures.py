# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The architectures of the zoo: how each is built, with which weights, and what it is given.

ZOO[name].build(small) gives a model with seeded weights and its inputs by name. Images have their native size, or a small
one; models of transformers are of a small configuration in both. Nothing is downloaded.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import timm
import torch
import torchvision
import transformers
from torch import nn
from torchvision.models.detection.backbone_utils import mobilenet_backbone, resnet_fpn_backbone

SEED = 20261122
VOCABULARY, TOKENS, LAYERS = 500, 16, 2


@dataclass
class Architecture:
    """`make` builds the model for small images or native ones; `inputs` gives its inputs, by name."""
    library: str
    make: Callable[[bool], nn.Module]
    inputs: Callable[[bool, nn.Module], dict[str, torch.Tensor]]
    outputs: list[str] | None = field(default=None)

    def build(self, small: bool) -> tuple[nn.Module, dict[str, torch.Tensor]]:
        torch.manual_seed(SEED)
        model = self.make(small)
        model.eval()
        inputs = self.inputs(small, model)
        fill(model)
        settle(model, inputs)
        return model, inputs


ZOO: dict[str, Architecture] = {}


def fill(model: nn.Module) -> None:
    """Draws what initialisation leaves at a constant.

    A last layer of zeros would hide all that comes before it. Batch normalisations that only take the average away, with
    a ReLU behind each, multiply every error by 1.2 (Yang et al. 2019, "A mean field theory of batch normalization"), which
    in 50 layers is 9,000; trained ones have gains and offsets.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine:  # pylint: disable=protected-access
            nn.init.uniform_(module.weight, 0.5, 1.0)
            nn.init.uniform_(module.bias, 0.0, 1.0)


def settle(model: nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """Statistics of batch normalisations as of a random batch."""
    norms = [module for module in model.modules()
             if isinstance(module, nn.modules.batchnorm._BatchNorm)]  # pylint: disable=protected-access
    if norms:
        for module in norms:
            module.momentum = 1.0
        model.train()
        with torch.no_grad():
            model(**{name: torch.randn(4, *value.shape[1:]) for name, value in inputs.items()})
    model.eval()


class First(nn.Module):
    """A model that takes tensors by name and gives the first of its results."""

    def __init__(self, model: nn.Module, **fixed):
        super().__init__()
        self.model, self.fixed = model, fixed

    def first(self, **inputs):
        result = self.model(**inputs, **self.fixed)
        return next(iter(result.values())) if isinstance(result, dict) else (
            result[0] if isinstance(result, tuple) else result)


class Image(First):
    """A model of torchvision or timm, whose one input has no common name."""

    def forward(self, image):
        result = self.model(image)
        return result["out"] if isinstance(result, dict) and "out" in result else result


class Pyramid(First):
    """The backbone of a detector: a map of every scale."""

    def forward(self, image):
        result = self.model(image)
        return tuple(result.values()) if isinstance(result, dict) else tuple(result)


class Pixels(First):
    def forward(self, pixel_values):
        return self.first(pixel_values=pixel_values)


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


class Half(nn.Module):
    """The encoder of a model of two halves."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, **inputs):
        return self.encoder(**inputs)


class Decoder(nn.Module):
    """A language model that also gives the keys and values of its layers."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def with_cache(self, **inputs):
        result = self.model(**inputs, use_cache=True)
        cached = [tensor for layer in result.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return (result.logits, *cached)


class Prefill(Decoder):
    def forward(self, input_ids, attention_mask):
        return self.with_cache(input_ids=input_ids, attention_mask=attention_mask)


class Step(Decoder):
    """One token behind a past of two layers."""

    def forward(self, input_ids, past_key_0, past_value_0, past_key_1, past_value_1):
        cache = transformers.DynamicCache()
        cache.update(past_key_0, past_value_0, 0)
        cache.update(past_key_1, past_value_1, 1)
        return self.with_cache(input_ids=input_ids, past_key_values=cache)


CACHE = [f"{part}_{layer}" for layer in range(LAYERS) for part in ("key", "value")]


def images(native: int, small: int):
    return lambda is_small, model: {"image": torch.randn(1, 3, *[small if is_small else native] * 2)}


def tokens(count: int = TOKENS) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (1, count))


def text(_small, _model):
    mask = torch.ones(1, TOKENS, dtype=torch.int64)
    mask[0, -3:] = 0  # padding
    return {"input_ids": tokens(), "attention_mask": mask}


def step(_small, model):
    """The next token, and the keys and values that the model itself makes of the tokens before it."""
    with torch.no_grad():
        _, *cached = model.with_cache(input_ids=tokens())
    return {"input_ids": tokens(1), **{f"past_{name}": tensor.clone() for name, tensor in zip(CACHE, cached)}}


# torchvision: size of small images; the native one is 224 pixels unless NATIVE says otherwise.

def add_vision(name: str, native: int, small: int, **options) -> None:
    def make(_small):
        return Image(torchvision.models.get_model(name, weights=None, **options))
    ZOO[name] = Architecture("torchvision", make, images(native, small))


SMALL = {64: "alexnet vgg11 vgg16 vgg19 vgg11_bn resnext50_32x4d resnext101_32x8d wide_resnet50_2 densenet121 densenet161 "
             "densenet169 convnext_tiny convnext_small swin_t swin_s swin_v2_t",
         96: "resnet18 resnet34 resnet50 resnet101 resnet152 squeezenet1_0 squeezenet1_1 mobilenet_v2 mobilenet_v3_small "
             "mobilenet_v3_large mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 shufflenet_v2_x0_5 shufflenet_v2_x1_0 "
             "shufflenet_v2_x1_5 shufflenet_v2_x2_0 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 "
             "efficientnet_v2_s regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_x_3_2gf regnet_y_400mf "
             "regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf"}
NATIVE = {"efficientnet_b1": 240, "efficientnet_b2": 260, "efficientnet_b3": 300, "swin_v2_t": 256}
for extent, names in SMALL.items():
    for architecture in names.split():
        add_vision(architecture, NATIVE.get(architecture, 224), 224 if architecture == "alexnet" else extent)
add_vision("googlenet", 224, 96, init_weights=True, aux_logits=False)
add_vision("inception_v3", 299, 128, init_weights=True, aux_logits=False)
for architecture in ("fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
    add_vision(architecture, 224, 64, weights_backbone=None, num_classes=21)


def vit(patch: int):
    def make(small: bool):
        if not small:
            return Image(torchvision.models.get_model(f"vit_b_{patch}", weights=None))
        return Image(torchvision.models.VisionTransformer(
            image_size=64, patch_size=patch, num_layers=3, num_heads=4, hidden_dim=128, mlp_dim=256, num_classes=100))
    return make


def maxvit(small: bool):
    if not small:
        return Image(torchvision.models.maxvit_t(weights=None))
    return Image(torchvision.models.MaxVit(
        input_size=(64, 64), stem_channels=16, partition_size=4, block_channels=[32, 64], block_layers=[1, 1],
        head_dim=16, stochastic_depth_prob=0.0, num_classes=100))


for size in (16, 32):
    ZOO[f"vit_b_{size}"] = Architecture("torchvision", vit(size), images(224, 64))
ZOO["maxvit_t"] = Architecture("torchvision", maxvit, images(224, 64))


def pyramid(name: str):
    def make(_small):
        if name.startswith("mobilenet"):
            backbone = mobilenet_backbone(backbone_name=name, weights=None, fpn=True, trainable_layers=6,
                                          norm_layer=nn.BatchNorm2d)
        else:
            backbone = resnet_fpn_backbone(backbone_name=name, weights=None, trainable_layers=5,
                                           norm_layer=nn.BatchNorm2d)
        return Pyramid(backbone)
    return make


def ssdlite(_small):
    detector = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=21)
    return Pyramid(detector.backbone)


for backbone in ("resnet18", "resnet50", "mobilenet_v3_large"):
    ZOO[f"{backbone}_fpn"] = Architecture("torchvision", pyramid(backbone), images(224, 96))
ZOO["ssdlite320_backbone"] = Architecture("torchvision", ssdlite, images(320, 96))


# timm

def add_timm(name: str, small: int, **options) -> None:
    def make(is_small: bool):
        return Image(timm.create_model(name, pretrained=False, **(options if is_small else {})))
    ZOO[name] = Architecture("timm", make, images(224, small))


add_timm("mixer_s32_224", 64, img_size=64)
add_timm("gmlp_ti16_224", 64, img_size=64)
add_timm("poolformer_s12", 64)
add_timm("ghostnet_050", 96)
add_timm("resmlp_12_224", 64, img_size=64)
add_timm("xcit_nano_12_p16_224", 64)


# transformers

def built(model: str, config: str, options: dict) -> nn.Module:
    return getattr(transformers, model)(getattr(transformers, config)(**options))


def add(name: str, wrapper, inputs, model: str, config: str, *, part=lambda whole: whole, fixed=None, **options) -> None:
    """A model of transformers from a small configuration."""
    ZOO[name] = Architecture("transformers", lambda _small: wrapper(part(built(model, config, options)), **(fixed or {})),
                             inputs)


def add_decoder(name: str, model: str, config: str, **options) -> None:
    """A language model twice: on all tokens, and on one with a past."""
    for suffix, wrapper, inputs in (("prefill", Prefill, text), ("decode", Step, step)):
        ZOO[f"{name}_{suffix}"] = Architecture(
            "transformers", lambda _small, wrapper=wrapper: wrapper(built(model, config, options)), inputs,
            ["logits", *(f"present_{part}" for part in CACHE)])


IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BERT = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
        "intermediate_size": 128, "max_position_embeddings": 64}
DECODER = {**BERT, **IDS}
GROUPED = {**DECODER, "num_key_value_heads": 2}
for prefix, options in {"Bert": {}, "Roberta": {}, "Albert": {"embedding_size": 32}, "Electra": {"embedding_size": 32},
                        "MPNet": {}, "DebertaV2": {}}.items():
    add(prefix.lower(), Text, text, f"{prefix}Model", f"{prefix}Config", **BERT, **options)
add("distilbert", Text, text, "DistilBertModel", "DistilBertConfig", vocab_size=VOCABULARY, dim=64, n_layers=LAYERS,
    n_heads=4, hidden_dim=128, max_position_embeddings=64)
add("clip_text", Text, text, "CLIPTextModel", "CLIPTextConfig", **BERT, **IDS)
add("t5_encoder", Text, text, "T5EncoderModel", "T5Config", fixed={"use_cache": False}, vocab_size=VOCABULARY, d_model=64,
    d_kv=16, d_ff=128, num_layers=LAYERS, num_heads=4)
HALVES = {"vocab_size": VOCABULARY, "d_model": 64, "encoder_layers": LAYERS, "decoder_layers": 1,
          "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
add("bart_encoder", Text, text, "BartModel", "BartConfig", part=Half, max_position_embeddings=64, **HALVES)
add("whisper_encoder", Spectrum, lambda _small, _model: {"input_features": torch.randn(1, 40, 100)}, "WhisperModel",
    "WhisperConfig", part=Half, num_mel_bins=40, max_source_positions=50, decoder_start_token_id=1, suppress_tokens=None,
    begin_suppress_tokens=None, **HALVES, **IDS)
add("wav2vec2", Sound, lambda _small, _model: {"input_values": torch.randn(1, 4000)}, "Wav2Vec2Model", "Wav2Vec2Config",
    vocab_size=32, hidden_size=64, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=128,
    conv_dim=(32,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
add("mamba", Tokens, lambda _small, _model: {"input_ids": tokens()}, "MambaForCausalLM", "MambaConfig",
    fixed={"use_cache": False}, vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=LAYERS, state_size=8, **IDS)

LONG = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 64, "n_layer": LAYERS, "n_head": 4, **IDS}
add_decoder("gpt2", "GPT2LMHeadModel", "GPT2Config", **LONG)
add_decoder("gptj", "GPTJForCausalLM", "GPTJConfig", rotary_dim=8, **LONG)
add_decoder("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", **DECODER)
add_decoder("opt", "OPTForCausalLM", "OPTConfig", vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=LAYERS,
            num_attention_heads=4, ffn_dim=128, max_position_embeddings=64, word_embed_proj_dim=64)
add_decoder("bloom", "BloomForCausalLM", "BloomConfig", vocab_size=VOCABULARY, hidden_size=64, n_layer=LAYERS, n_head=4,
            **IDS)
add_decoder("falcon", "FalconForCausalLM", "FalconConfig", vocab_size=VOCABULARY, hidden_size=64,
            num_hidden_layers=LAYERS, num_attention_heads=4, **IDS)
HEADS = {"head_dim": 16}
for prefix, options in {"Llama": {}, "Mistral": HEADS, "Qwen2": {}, "Qwen3": HEADS, "Gemma": HEADS, "Gemma2": HEADS,
                        "Phi": {}, "Phi3": {}, "StableLm": {}, "Olmo2": {}, "Granite": {}}.items():
    add_decoder(prefix.lower(), f"{prefix}ForCausalLM", f"{prefix}Config", **GROUPED, **options)
# The default of experts, grouped_mm, cannot be exported.
add_decoder("mixtral", "MixtralForCausalLM", "MixtralConfig", num_local_experts=4, num_experts_per_tok=2,
            experts_implementation="batched_mm", **GROUPED)
add_decoder("qwen2_moe", "Qwen2MoeForCausalLM", "Qwen2MoeConfig", num_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=32, shared_expert_intermediate_size=64, experts_implementation="batched_mm", **GROUPED)

SMALL_IMAGE = {"hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 128,
               "image_size": 64, "patch_size": 16}


def pixels(_small, _model):
    return {"pixel_values": torch.randn(1, 3, 64, 64)}


add("vit", Pixels, pixels, "ViTForImageClassification", "ViTConfig", **SMALL_IMAGE)
for prefix in ("DeiT", "Beit", "Dinov2"):
    add(prefix.lower(), Pixels, pixels, f"{prefix}Model", f"{prefix}Config", **SMALL_IMAGE)
add("clip_vision", Pixels, pixels, "CLIPVisionModel", "CLIPVisionConfig", **SMALL_IMAGE)
add("swin", Pixels, pixels, "SwinModel", "SwinConfig", image_size=64, patch_size=4, embed_dim=32, depths=[2, 2],
    num_heads=[2, 4], window_size=4)
add("segformer", Pixels, pixels, "SegformerForSemanticSegmentation", "SegformerConfig", depths=[1, 1, 1, 1],
    hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=64)
add("convnextv2", Pixels, pixels, "ConvNextV2Model", "ConvNextV2Config", image_size=64, hidden_sizes=[16, 32, 48, 64],
    depths=[1, 1, 2, 1])
